#include "launcher/hosts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <ctime>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace trainctl {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Names(absl::string_view list) {
  const absl::StatusOr<std::vector<ListedNode>> nodes = ParseHostList(list);
  if (!nodes.ok()) return std::string(nodes.status().message());
  return absl::StrJoin(*nodes, " ", [](std::string* out, const ListedNode& node) {
    absl::StrAppend(out, node.name);
    if (node.slots != 0) absl::StrAppend(out, ":", node.slots);
  });
}

std::string Refusal(absl::string_view list) {
  const absl::Status status = ParseHostList(list).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status)) << list.substr(0, 80) << " " << status;
  return std::string(status.message());
}

TEST(HostList, KeepsTheWidthOfNumbers) {
  EXPECT_EQ(Names("n[08-10,12]"), "n08 n09 n10 n12");
  EXPECT_EQ(Names("n[8-10]"), "n8 n9 n10");
  EXPECT_EQ(Names("n[007]"), "n007");
  EXPECT_EQ(Names("n[098-101]"), "n098 n099 n100 n101");
}

TEST(HostList, SeparatesAtCommasAndSpacesOutsideOfBrackets) {
  EXPECT_EQ(Names("a1,a2 b[08-09]\n\tc,,d,"), "a1 a2 b08 b09 c d");
  EXPECT_EQ(Names(" a[1, 3] "), "a1 a3");
}

TEST(HostList, MultipliesBracketsTheLastOneFastest) {
  EXPECT_EQ(Names("n[1-2][3-4]"), "n13 n14 n23 n24");
  EXPECT_EQ(Names("r[1-2]n[1-2]-ib.site"), "r1n1-ib.site r1n2-ib.site r2n1-ib.site r2n2-ib.site");
}

TEST(HostList, TakesSlotsAfterAColon) {
  EXPECT_EQ(Names("n1:8,n[2-3]:4,n4"), "n1:8 n2:4 n3:4 n4");
  EXPECT_THAT(Refusal("n1:0"), HasSubstr("slots"));
  EXPECT_THAT(Refusal("n1:x"), HasSubstr("slots"));
  EXPECT_THAT(Refusal("n1:8:9"), HasSubstr("slots"));
}

TEST(HostList, TakesAddressesForNames) { EXPECT_EQ(Names("10.0.0.[1-2]"), "10.0.0.1 10.0.0.2"); }

TEST(HostList, RefusesWhatIsMalformed) {
  EXPECT_THAT(Refusal(""), HasSubstr("names none"));
  EXPECT_THAT(Refusal(" ,, "), HasSubstr("names none"));
  EXPECT_THAT(Refusal("n[1-"), HasSubstr("not closed"));
  EXPECT_THAT(Refusal("n[1-3"), HasSubstr("not closed"));
  EXPECT_THAT(Refusal("n[3-1]"), HasSubstr("ends before it begins"));
  EXPECT_THAT(Refusal("n[[1-2]]"), HasSubstr("within brackets"));
  EXPECT_THAT(Refusal("n[]"), HasSubstr("expected a number"));
  EXPECT_THAT(Refusal("n[1,]"), HasSubstr("expected a number"));
  EXPECT_THAT(Refusal("n[a-b]"), HasSubstr("expected a number"));
  EXPECT_THAT(Refusal("n[1-2-3]"), HasSubstr("expected a number"));
  EXPECT_THAT(Refusal("n[-1]"), HasSubstr("expected a number"));
  EXPECT_THAT(Refusal("n[000x133]"), HasSubstr("expected a number"));
  EXPECT_THAT(Refusal("n[1-010]"), HasSubstr("padded"));
  EXPECT_THAT(Refusal("n]"), HasSubstr("name"));
  EXPECT_THAT(Refusal("-n"), HasSubstr("name"));
  EXPECT_THAT(Refusal("n;reboot"), HasSubstr("name"));
  EXPECT_THAT(Refusal("n[1-3],n2"), HasSubstr("named twice"));
}

double MillisToRefuse(const std::string& list) {
  timespec before;
  timespec after;
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  Refusal(list);
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  return static_cast<double>(after.tv_sec - before.tv_sec) * 1e3 +
         static_cast<double>(after.tv_nsec - before.tv_nsec) * 1e-6;
}

TEST(HostList, RefusesHostileListsBeforeMakingAnything) {
  const std::string hostile[] = {
      "n[0-999999999]",
      "n[0-99999999999999999999]",
      "a[1-9][1-9][1-9][1-9][1-9][1-9]",
      "n[0-999999999],n[0-999999999],n[0-999999999]",
      absl::StrCat("n", std::string(1000, '['), "1", std::string(1000, ']')),
      std::string(10 << 20, 'n'),
      std::string(10 << 20, '['),
      absl::StrCat("n[", absl::StrJoin(std::vector<std::string>(10000, "1-60000"), ","), "]"),
      absl::StrCat("n", absl::StrJoin(std::vector<std::string>(20, "[1-1]"), "")),
  };
  for (const std::string& list : hostile) {
    // Of processor time; the promise is 10 ms, and a sanitizer's build needs more.
    EXPECT_LT(MillisToRefuse(list), 100) << list.substr(0, 60);
  }
}

TEST(HostList, HoldsAsManyNodesAsTheLimitSays) {
  EXPECT_EQ(ParseHostList("n[0-65535]")->size(), kMaxListedNodes);
  EXPECT_THAT(Refusal("n[0-65536]"), HasSubstr("more than 65536"));
  EXPECT_THAT(Refusal("n[0-65535],m"), HasSubstr("more than 65536"));
}

TEST(HostFile, HasOneOrMoreItemsOnALineAndComments) {
  const absl::StatusOr<std::vector<ListedNode>> nodes =
      ParseHostFile("# the rack\nn1:8  # first\n\nn[2-3]:4\r\n  n4\n");
  ASSERT_TRUE(nodes.ok()) << nodes.status();
  EXPECT_THAT(*nodes, ElementsAre(ListedNode{"n1", 8}, ListedNode{"n2", 4}, ListedNode{"n3", 4},
                                  ListedNode{"n4", 0}));
}

TEST(HostFile, NamesTheLineThatIsWrong) {
  EXPECT_THAT(std::string(ParseHostFile("n1\nn[2\n").status().message()), HasSubstr("line 2"));
}

TEST(RunLengths, AreSpelledOut) {
  EXPECT_THAT(*ParseRunLengths("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(*ParseRunLengths("72"), ElementsAre(72));
  for (const char* text : {"", "2(x", "2(x0)", "2(x-1)", "x", "2(x3)1", "1(x999999999)", "-1"}) {
    EXPECT_FALSE(ParseRunLengths(text).ok()) << text;
  }
}

TEST(CompressHosts, IsUndoneByParseHostList) {
  EXPECT_EQ(CompressHosts({"n1", "n2", "n3", "n7", "m08", "m09", "m10"}), "n[1-3],n7,m[08-10]");
  EXPECT_EQ(CompressHosts({"n9", "n10", "a", "b"}), "n[9-10],a,b");
  EXPECT_EQ(CompressHosts({"n1.x", "n2.x", "n3.y"}), "n[1-2].x,n3.y");
  EXPECT_EQ(CompressHosts({}), "");
  for (const char* list : {"n[08-12],x,y[1-2]z", "r[1-2]n[1-3]", "n999999999", "n1,n01,n2"}) {
    std::vector<std::string> names;
    const std::vector<ListedNode> nodes = ParseHostList(list).value();
    for (const ListedNode& node : nodes) names.push_back(node.name);
    EXPECT_EQ(Names(CompressHosts(names)), absl::StrJoin(names, " ")) << list;
  }
}

// Lists made of the grammar's own pieces in any order: each is taken or refused, and what is taken
// is within the limits.
TEST(HostList, NeverFailsInAnyOtherWay) {
  const std::string pieces[] = {"n",
                                "[",
                                "]",
                                "-",
                                ",",
                                ":",
                                "0",
                                "1",
                                "99",
                                "008",
                                " ",
                                "[1-3]",
                                "[0-70000]",
                                "\n",
                                "#",
                                ".",
                                std::string(1, '\0'),
                                "\xff",
                                "999999999"};
  uint64_t random = 88172645463325252u;
  for (int round = 0; round < 20000; ++round) {
    std::string list;
    for (int i = 0; i < 12; ++i) {
      random ^= random << 13;
      random ^= random >> 7;
      random ^= random << 17;
      list += pieces[random % std::size(pieces)];
    }
    const absl::StatusOr<std::vector<ListedNode>> nodes = ParseHostList(list);
    if (nodes.ok()) {
      EXPECT_GE(nodes->size(), 1u);
      EXPECT_LE(nodes->size(), kMaxListedNodes);
    } else {
      EXPECT_TRUE(absl::IsInvalidArgument(nodes.status()));
    }
    ParseHostFile(list).status().IgnoreError();
    ParseRunLengths(list).status().IgnoreError();
  }
}

}  // namespace
}  // namespace trainctl
