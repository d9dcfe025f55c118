// What the doctor says of made hosts.
#include "harness/doctor/examine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "harness/doctor/ask_python.h"

namespace lockstep::doctor {
namespace {

using testing::HasSubstr;

Facts well() {
  return {.open_files = {65'536, 65'536},
          .locked_memory = {kUnlimited, kUnlimited},
          .shm_bytes = std::uint64_t{8} << 30,
          .shm_free = std::uint64_t{8} << 30,
          .own_ports = {32'768, 60'999},
          .host = "node1",
          .host_addresses = {"10.0.0.1"},
          .interfaces = {{"lo", true, true, {"127.0.0.1"}}, {"eth0", true, false, {"10.0.0.1"}}},
          .clock_source = "tsc",
          .clock_synchronised = true,
          .torch = {.python = "python3",
                    .version = "2.15.0",
                    .round_trips = {{"lo", 3.0, ""}, {"eth0", 3.0, ""}}}};
}

Item item(const Facts& facts, const std::string& name) {
  for (const Item& one : examine(facts)) {
    if (one.name == name)
      return one;
  }
  return {};
}

TEST(Examine, AHostThatIsWell) {
  for (const Item& one : examine(well()))
    EXPECT_EQ(one.level, Level::kWell) << one.name << ": " << one.have;
}

TEST(Examine, WhatIsNotWellHasNeedAndWayOut) {
  Facts facts = well();
  facts.open_files = {1'024, 4'096};
  facts.host_addresses = {"127.0.1.1"};
  facts.shm_bytes = std::uint64_t{64} << 20;
  facts.clock_synchronised = false;
  facts.torch = {};
  const std::vector<Item> items = examine(facts);
  EXPECT_FALSE(stops_a_job(items));
  for (const Item& one : items) {
    if (one.level != Level::kWell) {
      EXPECT_FALSE(one.need.empty()) << one.name;
      EXPECT_FALSE(one.to_do.empty()) << one.name;
    }
  }
  EXPECT_EQ(item(facts, "open files").to_do, "ulimit -n 4096");
  EXPECT_EQ(item(facts, "torch").level, Level::kUnseen);
}

TEST(Examine, HostNameOfNoInterface) {
  Facts facts = well();
  facts.host_addresses = {"10.9.9.9"};
  EXPECT_EQ(item(facts, "host name").level, Level::kWarning);
  EXPECT_THAT(item(facts, "host name").have, HasSubstr("none of its interfaces"));
}

TEST(Examine, InterfacesByVariable) {
  Facts facts = well();
  facts.variables = {{"GLOO_SOCKET_IFNAME", "nosuch0"}, {"NCCL_SOCKET_IFNAME", "eth"}};
  EXPECT_EQ(item(facts, "GLOO_SOCKET_IFNAME").level, Level::kStops);
  EXPECT_EQ(item(facts, "NCCL_SOCKET_IFNAME").level, Level::kWell);
  facts.variables["NCCL_SOCKET_IFNAME"] = "=eth";
  EXPECT_EQ(item(facts, "NCCL_SOCKET_IFNAME").level, Level::kStops);
  facts.variables["NCCL_SOCKET_IFNAME"] = "^lo,docker";
  EXPECT_EQ(item(facts, "NCCL_SOCKET_IFNAME").level, Level::kWell);
}

TEST(Examine, RanksThatDoNotMeetOverTheInterfaceThatIsTakenStopAJob) {
  Facts facts = well();
  facts.torch.round_trips = {{"lo", std::nullopt, "refused"}, {"eth0", 3.0, ""}};
  EXPECT_FALSE(stops_a_job(examine(facts)));
  facts.torch.round_trips = {{"lo", 3.0, ""}, {"eth0", std::nullopt, "refused"}};
  EXPECT_TRUE(stops_a_job(examine(facts)));
}

TEST(Examine, ATakenPortStopsOnlyWhoHasAskedForIt) {
  Facts facts = well();
  facts.port_taken = true;
  EXPECT_EQ(item(facts, "port").level, Level::kWarning);
  facts.variables = {{"MASTER_PORT", "29500"}};
  EXPECT_EQ(item(facts, "port").level, Level::kStops);
}

TEST(AskPython, ReadsWhatWasSaidUntilTheLimit) {
  const Torch torch = answer_of(
      "a warning\nLOCKSTEP {\"torch\": \"2.15.0\"}\nLOCKSTEP {\"interface\": \"lo\", \"right\": "
      "true, \"ms\": 2.5}\n",
      /*finished=*/false, {"lo", "eth0"});
  EXPECT_EQ(torch.version, "2.15.0");
  ASSERT_EQ(torch.round_trips.size(), 2U);
  EXPECT_EQ(torch.round_trips[0].ms, 2.5);
  EXPECT_THAT(torch.round_trips[1].error, HasSubstr("did not come back"));
}

TEST(AskPython, NoTorch) {
  const Torch torch = answer_of("LOCKSTEP {\"no_torch\": \"No module named 'torch'\"}\n", true, {});
  EXPECT_EQ(torch.missing, "No module named 'torch'");
}

}  // namespace
}  // namespace lockstep::doctor
