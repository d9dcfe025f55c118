// Boost.Process v2, compiled once. Its header-only mode does not link in 1.81.
#define BOOST_PROCESS_V2_SEPARATE_COMPILATION 1
#include <boost/process/v2/src.hpp>
