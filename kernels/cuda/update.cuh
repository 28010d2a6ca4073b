// One pass over master weights, states, gradient and copy of many tensors: what the updates of all
// optimizers share. A rule gives the arithmetic.
#ifndef TRAINCTL_KERNELS_CUDA_UPDATE_CUH_
#define TRAINCTL_KERNELS_CUDA_UPDATE_CUH_

#include "kernels/cuda/rounding.h"
#include "kernels/cuda/tensor_table.cuh"
#include "kernels/cuda/update_plan.h"

namespace trainctl::cuda {

constexpr int kUpdateThreads = 256;
constexpr int kUpdateElements = 4;  // a thread's, next to each other: 16 bytes of float32
constexpr int kUpdateUnroll = 2;
constexpr int kUpdatePasses = 2;
constexpr int kUpdatePiece = kUpdateThreads * kUpdateElements * kUpdateUnroll * kUpdatePasses;

struct NoCopy {};

template <typename Copy, bool kStochastic>
__device__ inline void StoreCopy(Copy* copy, const float (&p)[kUpdateElements], uint64_t seed,
                                 int64_t step, int64_t index) {
  if constexpr (kStochastic) {
    const ops::PhiloxBlock words = RoundingWords(seed, step, index / kUpdateElements);
    union {
      uint2 raw;
      uint16_t element[kUpdateElements];
    } bits = {};
#pragma unroll
    for (int k = 0; k < kUpdateElements; ++k) {
      bits.element[k] = isfinite(p[k]) ? RoundStochastically(__float_as_uint(p[k]), words.word[k])
                                       : __bfloat16_as_ushort(__float2bfloat16_rn(p[k]));
    }
    __stcs(reinterpret_cast<uint2*>(copy), bits.raw);
  } else {
    Store<kUpdateElements, Reuse::kOnce>(copy, p);
  }
}

template <typename Copy, bool kStochastic>
__device__ inline void StoreOneCopy(Copy* copy, float p, uint64_t seed, int64_t step,
                                    int64_t index) {
  if constexpr (kStochastic) {
    if (isfinite(p)) {
      const ops::PhiloxBlock words = RoundingWords(seed, step, index / kUpdateElements);
      const uint32_t word = words.word[index % kUpdateElements];
      *copy = __ushort_as_bfloat16(RoundStochastically(__float_as_uint(p), word));
      return;
    }
  }
  *copy = FromFloat<Copy>(p);
}

// Rule: kStates; State(tensor, s) is the array of a tensor's state s; Arithmetic(plan, tensor)
// gives a function of (weight, gradient, states) that updates weight and states.
template <typename Rule, typename Tensor, typename Copy, typename Gradient, bool kStochastic>
__global__ void __launch_bounds__(kUpdateThreads)
    UpdateKernel(const __grid_constant__ TensorTable<Tensor> table, Rule rule, uint64_t seed,
                 const UpdatePlan* plan) {
  constexpr bool kCopies = !std::is_same_v<Copy, NoCopy>;
  constexpr int kElements = kUpdateElements, kStates = Rule::kStates;
  // From the end, where the gradient's last pieces are still in the cache from the norm's pass.
  const int block = gridDim.x - 1 - blockIdx.x;
  const int t = table.Find(block);
  const Tensor& tensor = table.item[t];
  const int64_t begin = static_cast<int64_t>(block - table.blocks_before[t]) * kUpdatePiece;
  const int64_t left = tensor.n - begin;
  const int count = left < kUpdatePiece ? static_cast<int>(left) : kUpdatePiece;
  float* weights = tensor.master + begin;
  const Gradient* gradients = static_cast<const Gradient*>(tensor.gradient) + begin;
  float* states[kStates];
  uintptr_t boundary = reinterpret_cast<uintptr_t>(weights) |
                       reinterpret_cast<uintptr_t>(gradients) * (4 / sizeof(Gradient));
#pragma unroll
  for (int s = 0; s < kStates; ++s) {
    states[s] = Rule::State(tensor, s) + begin;
    boundary |= reinterpret_cast<uintptr_t>(states[s]);
  }
  Copy* copies = nullptr;
  if constexpr (kCopies) {
    copies = static_cast<Copy*>(tensor.copy) + begin;
    boundary |= reinterpret_cast<uintptr_t>(copies) * (4 / sizeof(Copy));
  }
  const int64_t step = plan->step;
  const auto update = rule.Arithmetic(*plan, tensor);
  if (plan->bad_tensor >= 0) return;
  if (boundary % 16 == 0 && count == kUpdatePiece) {
#pragma unroll 1
    for (int pass = 0; pass < kUpdatePasses; ++pass) {
      float p[kUpdateUnroll][kElements], g[kUpdateUnroll][kElements];
      float state[kUpdateUnroll][kStates][kElements];
      const int first = (pass * kUpdateUnroll * kUpdateThreads + threadIdx.x) * kElements;
#pragma unroll
      for (int u = 0; u < kUpdateUnroll; ++u) {
        const int at = first + u * kUpdateThreads * kElements;
        Load<kElements, Reuse::kOnce>(gradients + at, g[u]);
        Load<kElements, Reuse::kOnce>(weights + at, p[u]);
#pragma unroll
        for (int s = 0; s < kStates; ++s) {
          Load<kElements, Reuse::kOnce>(states[s] + at, state[u][s]);
        }
      }
#pragma unroll
      for (int u = 0; u < kUpdateUnroll; ++u) {
        const int at = first + u * kUpdateThreads * kElements;
#pragma unroll
        for (int k = 0; k < kElements; ++k) {
          float one[kStates];
#pragma unroll
          for (int s = 0; s < kStates; ++s) one[s] = state[u][s][k];
          update(p[u][k], g[u][k], one);
#pragma unroll
          for (int s = 0; s < kStates; ++s) state[u][s][k] = one[s];
        }
        Store<kElements, Reuse::kOnce>(weights + at, p[u]);
#pragma unroll
        for (int s = 0; s < kStates; ++s) {
          Store<kElements, Reuse::kOnce>(states[s] + at, state[u][s]);
        }
        if constexpr (kCopies) {
          StoreCopy<Copy, kStochastic>(copies + at, p[u], seed, step,
                                       tensor.first_index + begin + at);
        }
      }
    }
    return;
  }
  for (int i = threadIdx.x; i < count; i += kUpdateThreads) {
    float one[kStates], p = weights[i];
#pragma unroll
    for (int s = 0; s < kStates; ++s) one[s] = states[s][i];
    update(p, ToFloat(gradients[i]), one);
    weights[i] = p;
#pragma unroll
    for (int s = 0; s < kStates; ++s) states[s][i] = one[s];
    if constexpr (kCopies) {
      StoreOneCopy<Copy, kStochastic>(copies + i, p, seed, step, tensor.first_index + begin + i);
    }
  }
}

template <typename Copy, bool kStochastic, typename Rule, typename Tensor>
absl::Status LaunchUpdate(const Rule& rule, absl::Span<const Tensor> tensors, Dtype gradient_type,
                          uint64_t seed, const UpdatePlan* plan, cudaStream_t stream) {
  return WithType(gradient_type, [&](auto tag) {
    using Gradient = typename decltype(tag)::Type;
    return ForTables(
        tensors, kUpdatePiece, [](const Tensor& tensor) { return tensor.n; },
        [&](const TensorTable<Tensor>& table, int blocks) {
          UpdateKernel<Rule, Tensor, Copy, Gradient, kStochastic>
              <<<blocks, kUpdateThreads, 0, stream>>>(table, rule, seed, plan);
          return LaunchStatus(Rule::kName);
        });
  });
}

// Chooses the copy's type and rounding.
template <typename Rule, typename Tensor>
absl::Status Update(const Rule& rule, absl::Span<const Tensor> tensors, Dtype copy_type,
                    Dtype gradient_type, const CopyRounding& rounding, const UpdatePlan* plan,
                    cudaStream_t stream) {
  int64_t copies = 0;
  for (const Tensor& tensor : tensors) {
    if (tensor.copy != nullptr) ++copies;
    if (tensor.first_index % 8 != 0) {
      return absl::InvalidArgumentError(absl::StrCat(Rule::kName, ": a tensor's first index is ",
                                                     tensor.first_index,
                                                     ", which is no multiple of 8"));
    }
  }
  if (copies != 0 && copies != static_cast<int64_t>(tensors.size())) {
    return absl::InvalidArgumentError(
        absl::StrCat(Rule::kName, ": ", copies, " of ", tensors.size(),
                     " tensors have a copy of their weights; give all or none"));
  }
  if (copies == 0) {
    return LaunchUpdate<NoCopy, false>(rule, tensors, gradient_type, 0, plan, stream);
  }
  if (rounding.stochastic) {
    if (copy_type != Dtype::kBfloat16) {
      return absl::InvalidArgumentError(
          absl::StrCat(Rule::kName, ": stochastic rounding is for bfloat16 only"));
    }
    return LaunchUpdate<__nv_bfloat16, true>(rule, tensors, gradient_type, rounding.seed, plan,
                                             stream);
  }
  return WithType(copy_type, [&](auto tag) {
    return LaunchUpdate<typename decltype(tag)::Type, false>(rule, tensors, gradient_type, 0, plan,
                                                             stream);
  });
}

}  // namespace trainctl::cuda

#endif  // TRAINCTL_KERNELS_CUDA_UPDATE_CUH_
