#ifndef TRAINCTL_KERNELS_ATTENTION_REFERENCE_H_
#define TRAINCTL_KERNELS_ATTENTION_REFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/attention.h"

namespace trainctl::reference {

// Probabilities of position t of one head over positions 0 … t.
inline std::vector<double> AttentionRow(const ops::AttentionShape& a, const double* qkv, int64_t s,
                                        int64_t h, int64_t t) {
  const int64_t stride = 3 * a.width();
  const double* q = qkv + (s * a.context + t) * stride + h * a.head_size;
  std::vector<double> p;
  double largest = -INFINITY, sum = 0;
  for (int64_t u = 0; u <= t; ++u) {
    const double* k = qkv + (s * a.context + u) * stride + a.width() + h * a.head_size;
    double dot = 0;
    for (int64_t i = 0; i < a.head_size; ++i) dot += q[i] * k[i];
    p.push_back(dot / std::sqrt(static_cast<double>(a.head_size)));
    largest = std::max(largest, p.back());
  }
  for (double& v : p) sum += v = std::exp(v - largest);
  for (double& v : p) v /= sum;
  return p;
}

inline void AttentionForward(const ops::AttentionShape& a, const double* qkv, double* y) {
  for (int64_t s = 0; s < a.samples; ++s) {
    for (int64_t h = 0; h < a.heads; ++h) {
      for (int64_t t = 0; t < a.context; ++t) {
        const auto p = AttentionRow(a, qkv, s, h, t);
        double* out = y + (s * a.context + t) * a.width() + h * a.head_size;
        for (int64_t i = 0; i < a.head_size; ++i) {
          out[i] = 0;
          for (int64_t u = 0; u <= t; ++u) {
            const int64_t v = (s * a.context + u) * 3 * a.width() + 2 * a.width();
            out[i] += p[u] * qkv[v + h * a.head_size + i];
          }
        }
      }
    }
  }
}

inline void AttentionBackward(const ops::AttentionShape& a, const double* dy, const double* qkv,
                              double* dqkv) {
  const int64_t stride = 3 * a.width();
  const double scale = 1 / std::sqrt(static_cast<double>(a.head_size));
  for (int64_t k = 0; k < a.samples * a.context * stride; ++k) dqkv[k] = 0;
  for (int64_t s = 0; s < a.samples; ++s) {
    for (int64_t h = 0; h < a.heads; ++h) {
      for (int64_t t = 0; t < a.context; ++t) {
        const auto p = AttentionRow(a, qkv, s, h, t);
        const double* d = dy + (s * a.context + t) * a.width() + h * a.head_size;
        const int64_t q = (s * a.context + t) * stride + h * a.head_size;
        std::vector<double> dp(p.size(), 0.0);
        double dot = 0;
        for (int64_t u = 0; u <= t; ++u) {
          const int64_t v = (s * a.context + u) * stride + 2 * a.width() + h * a.head_size;
          for (int64_t i = 0; i < a.head_size; ++i) {
            dp[u] += d[i] * qkv[v + i];
            dqkv[v + i] += p[u] * d[i];
          }
          dot += p[u] * dp[u];
        }
        for (int64_t u = 0; u <= t; ++u) {
          const int64_t k = (s * a.context + u) * stride + a.width() + h * a.head_size;
          const double ds = p[u] * (dp[u] - dot) * scale;
          for (int64_t i = 0; i < a.head_size; ++i) {
            dqkv[q + i] += ds * qkv[k + i];
            dqkv[k + i] += ds * qkv[q + i];
          }
        }
      }
    }
  }
}

}  // namespace trainctl::reference

#endif  // TRAINCTL_KERNELS_ATTENTION_REFERENCE_H_
