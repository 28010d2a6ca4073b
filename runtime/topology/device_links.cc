#include "runtime/topology/device_links.h"

#include "runtime/base/check.h"

namespace trainctl {

std::vector<Link> LinksFromPlaces(const Topology& topology, const std::vector<PciPlace>& gpus,
                                  const std::vector<PciPlace>& nics) {
  CHECK(gpus.size() == topology.gpus.size() && nics.size() == topology.nics.size());
  std::vector<std::string> names;
  for (const Gpu& gpu : topology.gpus) {
    names.push_back(DeviceName(gpu));
  }
  for (const Nic& nic : topology.nics) {
    names.push_back(nic.name);
  }
  std::vector<PciPlace> places = gpus;
  places.insert(places.end(), nics.begin(), nics.end());
  std::vector<Link> links;
  for (size_t a = 0; a < names.size(); ++a) {
    for (size_t b = a + 1; b < names.size(); ++b) {
      Link link;
      link.a = names[a];
      link.b = names[b];
      link.path = PathBetween(places[a], places[b]);
      links.push_back(std::move(link));
    }
  }
  return links;
}

}  // namespace trainctl
