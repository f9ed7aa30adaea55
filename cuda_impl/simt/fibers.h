// One fiber per CUDA thread: where its stack lies, what it shares with its warp and block.
//
// The 32 stacks of a warp fill one aligned region, and the warp's state lies at the region's start.
// So a thread finds its warp, and its lane, from the address of its own frame: no thread-local
// lookup, and threads that share data share cache lines.
//
//   region: | Warp state | guard | stack of lane 0 | guard | stack of lane 1 | ... | stack of lane 31 |
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "context.h"
#include "vector_types.h"

namespace dsa::simt {

inline constexpr unsigned warp_size = 32;
inline constexpr std::size_t stack_bytes = std::size_t{1} << 17;
inline constexpr std::size_t region_bytes = stack_bytes * warp_size;

// A place in the source where threads meet. `exited` is the place of a thread that has returned.
enum class Meeting : std::uint32_t { exited, cluster, syncthreads, syncwarp, shuffle, vote, reduce };

struct Site {
  const char* file;
  std::uint32_t line;
  Meeting kind;
  bool operator==(const Site& other) const { return line == other.line && kind == other.kind; }
};

struct Block;
struct Launch;

struct Warp {
  Context lanes[warp_size];
  uint3 thread[warp_size];
  // Two generations: a lane may deposit for the next collective while later lanes still read this one.
  std::uint64_t deposit[2][warp_size];
  std::uint64_t combined[2];
  unsigned generation;
  unsigned index;
  Site site;
  Block* block;
};

struct Block {
  Launch* launch;
  uint3 index;
  unsigned rank;  // in its cluster
  Site site;
  Warp* const* warps;
  unsigned char* shared;
  std::size_t shared_bytes;
};

// A grid that is being run, and its blocks that are on their way: one cluster, which is a single block
// unless the launch asks for more.
struct Launch {
  const char* kernel;
  void (*invoke)(const void*);
  const void* arguments;
  dim3 grid, shape;
  unsigned threads;
  std::vector<Block> cluster;
  Site site;
  Context host;
  std::string error;
};

inline std::uintptr_t frame_address() { return reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0)); }
inline Warp& warp_at(std::uintptr_t frame) { return *reinterpret_cast<Warp*>(frame & ~(region_bytes - 1)); }
inline unsigned lane_at(std::uintptr_t frame) { return static_cast<unsigned>(frame / stack_bytes % warp_size); }
inline Warp& this_warp() { return warp_at(frame_address()); }
inline unsigned this_lane() { return lane_at(frame_address()); }

// One warp's region of memory; pages are touched only as deep as a kernel's stack grows.
class WarpRegion {
 public:
  WarpRegion() {
    void* memory = mmap(nullptr, 2 * region_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED) throw std::bad_alloc();
    const auto start = reinterpret_cast<std::uintptr_t>(memory);
    const auto aligned = (start + region_bytes - 1) & ~(region_bytes - 1);
    if (aligned != start) munmap(memory, aligned - start);
    munmap(reinterpret_cast<void*>(aligned + region_bytes), start + region_bytes - aligned);
    base_ = reinterpret_cast<unsigned char*>(aligned);
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    state_bytes_ = (sizeof(Warp) + page - 1) / page * page;
    for (unsigned lane = 0; lane < warp_size; ++lane) {
      mprotect(base_ + lane * stack_bytes + (lane == 0 ? state_bytes_ : 0), page, PROT_NONE);
    }
    new (base_) Warp{};
  }
  WarpRegion(const WarpRegion&) = delete;
  WarpRegion& operator=(const WarpRegion&) = delete;
  ~WarpRegion() { munmap(base_, region_bytes); }

  Warp* warp() const { return reinterpret_cast<Warp*>(base_); }

  // Stacks start at different distances from their ends: equal ones would fall on the same few
  // cache sets, since the ends are a power of two apart.
  void start(unsigned lane, void (*entry)()) const {
    const std::size_t colour = 64 + (lane * 5 % warp_size + warp()->index * 7 % warp_size) * 320;
    unsigned char* top = base_ + (lane + 1) * stack_bytes - colour;
    const std::size_t reserved = lane == 0 ? 2 * state_bytes_ : state_bytes_;
    init_context(warp()->lanes[lane], top, stack_bytes - colour - reserved, entry);
  }

 private:
  unsigned char* base_;
  std::size_t state_bytes_;
};

// Regions kept by an OS thread from launch to launch.
struct WarpPool {
  std::vector<std::unique_ptr<WarpRegion>> regions;
  std::vector<Warp*> warps;

  void grow(unsigned count) {
    while (regions.size() < count) {
      regions.push_back(std::make_unique<WarpRegion>());
      warps.push_back(regions.back()->warp());
    }
  }
};

inline WarpPool& warp_pool() {
  static thread_local WarpPool pool;
  return pool;
}

}  // namespace dsa::simt
