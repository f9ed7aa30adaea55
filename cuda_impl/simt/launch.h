// Runs a grid on the calling OS thread: blocks one after another, in order of their index.
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
inline constexpr std::size_t max_shared_bytes = 227 * 1024;

inline void thread_main() {
  const auto frame = frame_address();
  Warp& warp = warp_at(frame);
  const unsigned lane = lane_at(frame);
  for (;;) {  // one turn a block
    Block& block = *warp.block;
    block.invoke(block.arguments);
    arrive_block(warp, lane, Site{"", 0, Meeting::exited});
    const bool last = warp.index * warp_size + lane + 1 == block.threads;
    if (last) switch_context(warp.lanes[lane], block.host);
    else next_thread(warp, lane);
  }
}

inline void check_shape(const char* kernel, dim3 grid, dim3 shape, std::size_t shared_bytes) {
  const std::uint64_t threads = std::uint64_t{shape.x} * shape.y * shape.z;
  const std::string prefix = std::string("launch of kernel ") + kernel;
  if (threads == 0 || threads > max_threads || threads % warp_size != 0) {
    throw std::invalid_argument(prefix + " needs a block of whole warps and at most 1024 threads, got " +
                                std::to_string(threads));
  }
  if (grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535) {
    throw std::invalid_argument(prefix + " needs a grid of at most 2^31-1 x 65535 x 65535 blocks");
  }
  if (shared_bytes > max_shared_bytes) {
    throw std::invalid_argument(prefix + " needs at most " + std::to_string(max_shared_bytes) +
                                " bytes of dynamic shared memory, got " + std::to_string(shared_bytes));
  }
}

inline void run_grid(Block& block, std::size_t shared_bytes) {
  WarpPool& pool = warp_pool();
  const unsigned warps = block.threads / warp_size;
  pool.grow(warps);
  block.warps = pool.warps.data();
  std::vector<unsigned char> shared(shared_bytes + 128);
  const auto start = reinterpret_cast<std::uintptr_t>(shared.data());
  block.shared = reinterpret_cast<unsigned char*>((start + 127) & ~std::uintptr_t{127});
  for (unsigned w = 0; w < warps; ++w) {
    Warp& warp = *pool.warps[w];
    warp.index = w;
    warp.block = &block;
    warp.site = Site{"", 0, Meeting::exited};
    for (unsigned lane = 0; lane < warp_size; ++lane) {
      const unsigned t = w * warp_size + lane;
      warp.thread[lane] = {t % block.shape.x, t / block.shape.x % block.shape.y, t / block.shape.x / block.shape.y};
      pool.regions[w]->start(lane, thread_main);
    }
  }
  for (unsigned z = 0; z < block.grid.z; ++z) {
    for (unsigned y = 0; y < block.grid.y; ++y) {
      for (unsigned x = 0; x < block.grid.x; ++x) {
        block.index = {x, y, z};
        // Shared memory starts undefined on the device; all ones are NaN in every float format.
        std::memset(block.shared, 0xff, shared_bytes);
        switch_context(block.host, pool.warps[0]->lanes[0]);
        if (!block.error.empty()) throw std::runtime_error(block.error);
      }
    }
  }
}

template <class... Parameters, class... Arguments>
void launch(const char* name, void (*kernel)(Parameters...), dim3 grid, dim3 shape, std::size_t shared_bytes,
            Arguments&&... arguments) {
  check_shape(name, grid, shape, shared_bytes);
  struct Call {
    void (*kernel)(Parameters...);
    std::tuple<Parameters...> arguments;
  } call{kernel, std::tuple<Parameters...>(std::forward<Arguments>(arguments)...)};
  Block block{};
  block.kernel = name;
  block.invoke = [](const void* erased) {
    const auto& c = *static_cast<const Call*>(erased);
    std::apply(c.kernel, c.arguments);
  };
  block.arguments = &call;
  block.grid = grid;
  block.shape = shape;
  block.threads = shape.x * shape.y * shape.z;
  run_grid(block, shared_bytes);
}

}  // namespace dsa::simt
