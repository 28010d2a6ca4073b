// Lists of tensors as an argument of a kernel: each block finds the piece of a tensor that is its.
#ifndef TRAINCTL_KERNELS_CUDA_TENSOR_TABLE_CUH_
#define TRAINCTL_KERNELS_CUDA_TENSOR_TABLE_CUH_

#include <algorithm>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "kernels/cuda/device.cuh"

namespace trainctl::cuda {

constexpr int kTableItems = 256;

// At most 32764 bytes, which is what a launch takes as arguments.
template <typename Item>
struct TensorTable {
  int32_t count;
  int32_t first_item;                      // the number of item[0] in the whole list
  int32_t first_block;                     // blocks of the launches before
  int32_t blocks_before[kTableItems + 1];  // in this launch
  Item item[kTableItems];

  __device__ int Find(int block) const {
    int low = 0, high = count;  // blocks_before[low] <= block < blocks_before[high]
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      if (blocks_before[middle] <= block) {
        low = middle;
      } else {
        high = middle;
      }
    }
    return low;
  }
};

// Calls launch(table, blocks) for as many tables as the items need, with one block for every
// `piece` elements of an item.
template <typename Item, typename Elements, typename Launch>
absl::Status ForTables(absl::Span<const Item> items, int64_t piece, Elements&& elements,
                       Launch&& launch) {
  TensorTable<Item> table;
  table.first_block = 0;
  for (size_t begin = 0; begin < items.size(); begin += kTableItems) {
    table.count = static_cast<int32_t>(std::min<size_t>(kTableItems, items.size() - begin));
    table.first_item = static_cast<int32_t>(begin);
    int32_t blocks = 0;
    for (int32_t i = 0; i < table.count; ++i) {
      table.blocks_before[i] = blocks;
      table.item[i] = items[begin + static_cast<size_t>(i)];
      blocks += static_cast<int32_t>(CeilDivide(elements(table.item[i]), piece));
    }
    table.blocks_before[table.count] = blocks;
    if (blocks > 0) {
      if (absl::Status status = launch(table, blocks); !status.ok()) return status;
    }
    table.first_block += blocks;
  }
  return absl::OkStatus();
}

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_TENSOR_TABLE_CUH_
