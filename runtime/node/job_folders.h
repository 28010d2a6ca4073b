// The folders that daemons keep jobs and parts in: which there are, and whose each is. Thread-safe.
#ifndef TRAINCTL_RUNTIME_NODE_JOB_FOLDERS_H_
#define TRAINCTL_RUNTIME_NODE_JOB_FOLDERS_H_

#include <string>

namespace trainctl {

// Which daemon a job or part belongs to: a link in its folder to that daemon's socket.
void SetOwner(const std::string& folder, const std::string& socket);
bool IsOwner(const std::string& folder, const std::string& socket);

// A front end may keep a job's folder elsewhere. Then a link in ours leads there while the job
// runs, so that the next daemon finds it. `ours`: JobFolder of our state folder.
void LinkJob(const std::string& ours, const std::string& folder);
void UnlinkJob(const std::string& ours);
std::string FollowJob(const std::string& ours);  // itself if it is no link

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_NODE_JOB_FOLDERS_H_
