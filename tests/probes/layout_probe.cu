// Blocks of a matrix unit's kernel that holds `most` at once, by rows, rows of a group, and columns of the scores.
#include "binding.cuh"
#include "score_plan.cuh"

namespace dsa {

int64_t layout(int64_t rows, int64_t together, int64_t columns, int64_t most) {
  return layout_of(ScoreSizes{rows, 64, 64, 8448, columns, 0, 0}, static_cast<int>(together), most).blocks;
}

}  // namespace dsa

TVM_FFI_DLL_EXPORT_TYPED_FUNC(layout, dsa::layout);
