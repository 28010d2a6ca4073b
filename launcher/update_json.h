// What --json prints: one object per line, each with "schema": 1 and "type". Pure.
#ifndef TRAINCTL_LAUNCHER_UPDATE_JSON_H_
#define TRAINCTL_LAUNCHER_UPDATE_JSON_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "launcher/job_client.h"

namespace trainctl {

// A line of output is LineJson's matter; REQUIRES: `update` is no OutputBytes.
std::string UpdateJson(const JobUpdate& update);
std::string LineJson(int64_t epoch, int rank, int stream, absl::string_view line);
std::string DescriptionJson(const JobDescription& job);  // type "job"

}  // namespace trainctl

#endif  // TRAINCTL_LAUNCHER_UPDATE_JSON_H_
