// Matrix products of a fully connected layer, by OpenBLAS. Weights are [out, in].
#ifndef TRAINCTL_KERNELS_LINEAR_H_
#define TRAINCTL_KERNELS_LINEAR_H_

#include <cstdint>

namespace trainctl::ops {

// y[rows, out] = x[rows, in] · wᵀ, without a bias: the next operation adds it in its own pass.
void LinearForward(const float* x, const float* w, float* y, int64_t rows, int64_t in, int64_t out);

// y[rows, out] = x[rows, in] · wᵀ + b[out].
void LinearBiasForward(const float* x, const float* w, const float* b, float* y, int64_t rows,
                       int64_t in, int64_t out);

// dx[rows, in] = dy[rows, out] · w.
void LinearBackwardInput(const float* dy, const float* w, float* dx, int64_t rows, int64_t in,
                         int64_t out);

// dw[out, in] += dyᵀ · x.
void LinearBackwardWeight(const float* dy, const float* x, float* dw, int64_t rows, int64_t in,
                          int64_t out);

// db[out] += sum of dy[rows, out] over rows.
void BiasBackward(const float* dy, float* db, int64_t rows, int64_t out);

}  // namespace trainctl::ops

#endif  // TRAINCTL_KERNELS_LINEAR_H_
