// How threads wait for each other.
//
// Threads of a block run in turn. A thread that reaches a warp collective hands over to the next
// lane, the last lane to lane 0; when a lane runs again, every lane has arrived. At a block barrier
// the ring is the whole block; at a cluster barrier, and at the end of the kernel, all blocks of the
// cluster. This order is complete only if all threads of the ring meet at the same place, so the first
// to arrive names the place and each later one must agree. One that does not (or that has returned)
// ends the launch with an error.
#pragma once

#include <string>

#include "fibers.h"

namespace dsa::simt {

inline std::string describe(const Site& site) {
  static constexpr const char* names[] = {"kernel end", "cluster barrier", "__syncthreads", "__syncwarp",
                                          "warp shuffle", "warp vote", "warp reduction"};
  std::string text = names[static_cast<unsigned>(site.kind)];
  if (site.kind != Meeting::exited) text += std::string(" (") + site.file + ":" + std::to_string(site.line) + ")";
  return text;
}

[[noreturn]] inline void fail(Warp& warp, unsigned lane, const std::string& what) {
  const Block& block = *warp.block;
  Launch& launch = *block.launch;
  const auto triple = [](unsigned x, unsigned y, unsigned z) {
    return "(" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) + ")";
  };
  const uint3 t = warp.thread[lane];
  launch.error = std::string("kernel ") + launch.kernel + ", block " +
                 triple(block.index.x, block.index.y, block.index.z) + ", thread " + triple(t.x, t.y, t.z) + ": " +
                 what;
  Context abandoned;
  switch_context(abandoned, launch.host);
  __builtin_unreachable();
}

[[noreturn]] inline void diverged(Warp& warp, unsigned lane, const Site& here, const Site& there, const char* group) {
  fail(warp, lane, "divergent collective: this thread is at " + describe(here) + ", an earlier thread of its " + group +
                       " is at " + describe(there));
}

// Arrives at a warp collective and returns the generation to deposit in.
inline unsigned arrive(Warp& warp, unsigned lane, const Site& site) {
  if (lane == 0) {
    warp.generation ^= 1;
    warp.site = site;
  } else if (!(warp.site == site)) [[unlikely]] {
    diverged(warp, lane, site, warp.site, "warp");
  }
  return warp.generation;
}

inline void next_lane(Warp& warp, unsigned lane) {
  switch_context(warp.lanes[lane], warp.lanes[(lane + 1) % warp_size]);
}

// Arrives at a place where the whole block meets.
inline void arrive_block(Warp& warp, unsigned lane, const Site& site) {
  arrive(warp, lane, site);
  Block& block = *warp.block;
  if (warp.index == 0 && lane == 0) {
    block.site = site;
  } else if (!(block.site == site)) [[unlikely]] {
    diverged(warp, lane, site, block.site, "block");
  }
}

inline void next_thread(Warp& warp, unsigned lane) {
  if (lane + 1 < warp_size) return switch_context(warp.lanes[lane], warp.lanes[lane + 1]);
  const Block& block = *warp.block;
  const unsigned next = (warp.index + 1) % (block.launch->threads / warp_size);
  switch_context(warp.lanes[lane], block.warps[next]->lanes[0]);
}

// Arrives at a place where all blocks of a cluster meet: a barrier of theirs, or the end of the kernel.
inline void arrive_cluster(Warp& warp, unsigned lane, const Site& site) {
  arrive_block(warp, lane, site);
  const Block& block = *warp.block;
  Launch& launch = *block.launch;
  if (warp.index > 0 || lane > 0) return;
  if (block.rank == 0) {
    launch.site = site;
  } else if (!(launch.site == site)) [[unlikely]] {
    diverged(warp, lane, site, launch.site, "cluster");
  }
}

inline bool last_of_block(const Warp& warp, unsigned lane) {
  return warp.index * warp_size + lane + 1 == warp.block->launch->threads;
}

// The thread after this one: of the next block after the last of a block, of the first after the last block.
inline void next_of_cluster(Warp& warp, unsigned lane) {
  if (!last_of_block(warp, lane)) return next_thread(warp, lane);
  const Block& block = *warp.block;
  const auto& cluster = block.launch->cluster;
  switch_context(warp.lanes[lane], cluster[(block.rank + 1) % cluster.size()].warps[0]->lanes[0]);
}

}  // namespace dsa::simt
