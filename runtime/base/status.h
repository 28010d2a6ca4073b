// Status macros. Functions that can fail return absl::Status or absl::StatusOr; the meaning of
// each code is in runtime/README.md ("Errors"). No exceptions of our own.
#ifndef TRAINCTL_RUNTIME_BASE_STATUS_H_
#define TRAINCTL_RUNTIME_BASE_STATUS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

#define RETURN_IF_ERROR(expression)                           \
  do {                                                        \
    if (absl::Status status_ = (expression); !status_.ok()) { \
      return status_;                                         \
    }                                                         \
  } while (false)

#define TRAINCTL_CONCAT_INNER_(a, b) a##b
#define TRAINCTL_CONCAT_(a, b) TRAINCTL_CONCAT_INNER_(a, b)
#define TRAINCTL_ASSIGN_OR_RETURN_(tmp, lhs, expression) \
  auto tmp = (expression);                               \
  if (!tmp.ok()) {                                       \
    return std::move(tmp).status();                      \
  }                                                      \
  lhs = *std::move(tmp)

#define ASSIGN_OR_RETURN(lhs, expression) \
  TRAINCTL_ASSIGN_OR_RETURN_(TRAINCTL_CONCAT_(status_or_, __LINE__), lhs, expression)

#endif  // TRAINCTL_RUNTIME_BASE_STATUS_H_
