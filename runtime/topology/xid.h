// What the NVIDIA driver's error numbers (Xid) mean for a job and its node. Pure.
#ifndef TRAINCTL_RUNTIME_TOPOLOGY_XID_H_
#define TRAINCTL_RUNTIME_TOPOLOGY_XID_H_

#include <cstdint>
#include <string>

namespace trainctl {

enum class XidMeaning {
  kNothing,  // counted only
  kProgram,  // the program that used the GPU is wrong, or was ended; the GPU is not to blame
  kRestart,  // the GPU's error ended its program; a new one may run
  kUnfit,    // the GPU runs nothing more until it is reset, or the node rebooted
};

struct Xid {
  int number = 0;
  XidMeaning meaning = XidMeaning::kNothing;
  const char* what = "";    // "GPU has fallen off the bus"
  const char* remedy = "";  // empty: none
};

// Of a number that NVIDIA's catalogue gives no verdict for, nothing is concluded.
Xid FindXid(int64_t number);
std::string DescribeXid(const Xid& xid);  // "Xid 79 (GPU has fallen off the bus): reboot the node"

}  // namespace trainctl

#endif  // TRAINCTL_RUNTIME_TOPOLOGY_XID_H_
