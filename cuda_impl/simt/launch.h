// Runs a grid on the calling OS thread: blocks one after another, in order of their index, or clusters of
// blocks, whose blocks take turns.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <tuple>
#include <vector>

#include "meeting.h"

namespace dsa::simt {

inline constexpr unsigned max_threads = 1024;
inline constexpr unsigned max_cluster = 16;
inline constexpr std::size_t max_shared_bytes = 227 * 1024;

inline void thread_main() {
  const auto frame = frame_address();
  Warp& warp = warp_at(frame);
  const unsigned lane = lane_at(frame);
  for (;;) {  // one turn a block
    const Block& block = *warp.block;
    Launch& launch = *block.launch;
    launch.invoke(launch.arguments);
    arrive_cluster(warp, lane, Site{"", 0, Meeting::exited});
    const bool last = block.rank + 1 == launch.cluster.size() && last_of_block(warp, lane);
    if (last) switch_context(warp.lanes[lane], launch.host);
    else next_of_cluster(warp, lane);
  }
}

inline void check_shape(const char* kernel, dim3 grid, dim3 shape, unsigned cluster, std::size_t shared_bytes) {
  const std::uint64_t threads = std::uint64_t{shape.x} * shape.y * shape.z;
  const std::string prefix = std::string("launch of kernel ") + kernel;
  if (threads == 0 || threads > max_threads || threads % warp_size != 0) {
    throw std::invalid_argument(prefix + " needs a block of whole warps and at most 1024 threads, got " +
                                std::to_string(threads));
  }
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    throw std::invalid_argument(prefix + " needs a grid of at most 2^31-1 x 65535 x 65535 blocks");
  }
  if (cluster == 0 || cluster > max_cluster || grid.x % cluster != 0) {
    throw std::invalid_argument(prefix + " needs whole clusters of at most 16 blocks, got " + std::to_string(grid.x) +
                                " blocks in clusters of " + std::to_string(cluster));
  }
  if (shared_bytes > max_shared_bytes) {
    throw std::invalid_argument(prefix + " needs at most " + std::to_string(max_shared_bytes) +
                                " bytes of dynamic shared memory, got " + std::to_string(shared_bytes));
  }
}

// Gives each block of the cluster its warps and its shared memory; `memory` keeps the latter.
inline void start_threads(Launch& launch, std::size_t shared_bytes, std::vector<unsigned char>& memory) {
  WarpPool& pool = warp_pool();
  const unsigned warps = launch.threads / warp_size;
  const auto count = static_cast<unsigned>(launch.cluster.size());
  pool.grow(count * warps);
  const std::size_t pitch = (shared_bytes + 127) / 128 * 128;
  memory.resize(count * pitch + 128);
  const auto start = (reinterpret_cast<std::uintptr_t>(memory.data()) + 127) & ~std::uintptr_t{127};
  for (unsigned rank = 0; rank < count; ++rank) {
    Block& block = launch.cluster[rank];
    block.launch = &launch;
    block.rank = rank;
    block.warps = pool.warps.data() + rank * warps;
    block.shared = reinterpret_cast<unsigned char*>(start + rank * pitch);
    block.shared_bytes = shared_bytes;
    for (unsigned w = 0; w < warps; ++w) {
      Warp& warp = *block.warps[w];
      warp.index = w;
      warp.block = &block;
      warp.site = Site{"", 0, Meeting::exited};
      for (unsigned lane = 0; lane < warp_size; ++lane) {
        const unsigned t = w * warp_size + lane;
        const dim3 shape = launch.shape;
        warp.thread[lane] = {t % shape.x, t / shape.x % shape.y, t / shape.x / shape.y};
        pool.regions[rank * warps + w]->start(lane, thread_main);
      }
    }
  }
}

inline void run_grid(Launch& launch, std::size_t shared_bytes) {
  std::vector<unsigned char> memory;
  start_threads(launch, shared_bytes, memory);
  for (unsigned z = 0; z < launch.grid.z; ++z) {
    for (unsigned y = 0; y < launch.grid.y; ++y) {
      for (unsigned x = 0; x < launch.grid.x; x += static_cast<unsigned>(launch.cluster.size())) {
        for (Block& block : launch.cluster) {
          block.index = {x + block.rank, y, z};
          // Shared memory starts undefined on the device; all ones are NaN in every float format.
          std::memset(block.shared, 0xff, shared_bytes);
        }
        switch_context(launch.host, launch.cluster[0].warps[0]->lanes[0]);
        if (!launch.error.empty()) throw std::runtime_error(launch.error);
      }
    }
  }
}

// Every `cluster` neighbouring blocks along x are one cluster.
template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, unsigned cluster, dim3 shape,
            std::size_t shared_bytes, Arguments&&... arguments) {
  check_shape(name, grid, shape, cluster, shared_bytes);
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  } call{kernel, std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)};
  Launch launch{};
  launch.kernel = name;
  launch.invoke = [](const void* erased) {
    const auto& c = *static_cast<const Call*>(erased);
    std::apply(c.kernel, c.arguments);
  };
  launch.arguments = &call;
  launch.grid = grid;
  launch.shape = shape;
  launch.threads = shape.x * shape.y * shape.z;
  launch.cluster.resize(cluster);
  run_grid(launch, shared_bytes);
}

}  // namespace dsa::simt
