# LibTorch out of the PyTorch wheel of one Python interpreter, CPU or CUDA wheel, without any CUDA toolkit.
#
# find_package(Torch), which the wheel ships, enables CUDA whenever the wheel was built with it: it fails without a
# toolkit and picks the wrong NCCL with one. Here are two imported libraries and their flags instead.
#
# In:   LOCKSTEP_PYTHON       (cache, else environment) the interpreter; default .venv/bin/python
# Out:  LibTorch::torch_cpu   libtorch_cpu and libc10, with ProcessGroupGloo and the Reducer
#       LibTorch::torch_cuda  libtorch_cuda with ProcessGroupNCCL, where the torch in use has CUDA and its headers lie in
#                             the wheel's own nvidia packages: a toolkit's NCCL may be another, of another size
#       LibTorch_VERSION      2.15.0, without the local part (+cu132)
#       LibTorch_PYTHON       the interpreter, for tests that run Python programs
#       LibTorch_LIBRARY_DIR  the wheel's lib directory
#
# A target that includes torch must not include Debian's fmt: the wheel ships a newer one under the same name.

set(LibTorch_MIN_VERSION 2.11)
set(LibTorch_MAX_VERSION 2.15)

set(_libtorch_python "${CMAKE_SOURCE_DIR}/.venv/bin/python")
if(NOT "$ENV{LOCKSTEP_PYTHON}" STREQUAL "")
  set(_libtorch_python "$ENV{LOCKSTEP_PYTHON}")
endif()
set(LOCKSTEP_PYTHON "${_libtorch_python}" CACHE FILEPATH "Python interpreter whose PyTorch is used")
set(LibTorch_PYTHON "${LOCKSTEP_PYTHON}")
set(_libtorch_next "run `ci/dev setup`, or set LOCKSTEP_PYTHON to an interpreter with torch "
                   "${LibTorch_MIN_VERSION} to ${LibTorch_MAX_VERSION}, or build the rest with --preset no-torch")
string(CONCAT _libtorch_next ${_libtorch_next})

# version.py is executed alone: importing torch takes seconds and needs its CUDA libraries.
set(_libtorch_probe [=[
import importlib.util, os, sys
spec = importlib.util.find_spec("torch")
if spec is None or spec.origin is None:
    sys.exit("no module named torch")
root = os.path.dirname(os.path.realpath(spec.origin))
scope = {}
exec(open(os.path.join(root, "version.py")).read(), scope)
print(root + ";" + scope["__version__"])
]=])
execute_process(
  COMMAND "${LOCKSTEP_PYTHON}" -c "${_libtorch_probe}"
  WORKING_DIRECTORY /
  RESULT_VARIABLE _libtorch_status
  OUTPUT_VARIABLE _libtorch_output
  ERROR_VARIABLE _libtorch_error
  OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_STRIP_TRAILING_WHITESPACE)

set(LibTorch_FOUND FALSE)
set(_libtorch_problem "")
if(NOT _libtorch_status EQUAL 0)
  string(REGEX REPLACE ".*\n" "" _libtorch_error "${_libtorch_error}")
  if(NOT EXISTS "${LOCKSTEP_PYTHON}")
    set(_libtorch_error "no such file")
  endif()
  set(_libtorch_problem "LibTorch: cannot find torch with ${LOCKSTEP_PYTHON}: ${_libtorch_error}")
else()
  list(GET _libtorch_output 0 LibTorch_ROOT)
  list(GET _libtorch_output 1 _libtorch_full_version)
  string(REGEX MATCH "^[0-9]+\\.[0-9]+\\.[0-9]+" LibTorch_VERSION "${_libtorch_full_version}")
  string(REGEX MATCH "^[0-9]+\\.[0-9]+" _libtorch_minor "${LibTorch_VERSION}")
  set(LibTorch_LIBRARY_DIR "${LibTorch_ROOT}/lib")
  if(_libtorch_minor VERSION_LESS LibTorch_MIN_VERSION OR _libtorch_minor VERSION_GREATER LibTorch_MAX_VERSION)
    set(_libtorch_problem "LibTorch: ${LOCKSTEP_PYTHON} has torch ${_libtorch_full_version}, "
                          "need ${LibTorch_MIN_VERSION} to ${LibTorch_MAX_VERSION}")
    string(CONCAT _libtorch_problem ${_libtorch_problem})
  else()
    foreach(_libtorch_file lib/libtorch_cpu.so lib/libc10.so include/c10/core/Device.h)
      if(NOT EXISTS "${LibTorch_ROOT}/${_libtorch_file}")
        set(_libtorch_problem "LibTorch: torch ${_libtorch_full_version} in ${LibTorch_ROOT} has no ${_libtorch_file}")
      endif()
    endforeach()
  endif()
endif()

if(_libtorch_problem)
  if(LibTorch_FIND_REQUIRED)
    message(FATAL_ERROR "${_libtorch_problem}\n${_libtorch_next}")
  endif()
  return()
endif()
set(LibTorch_FOUND TRUE)
# Another torch in the same interpreter must configure again.
set_property(DIRECTORY "${CMAKE_SOURCE_DIR}" APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${LibTorch_ROOT}/version.py")

find_package(Threads REQUIRED)
if(NOT TARGET LibTorch::torch_cpu)
  message(STATUS "Found LibTorch: ${LibTorch_ROOT} (${_libtorch_full_version})")
  add_library(LibTorch::c10 SHARED IMPORTED GLOBAL)
  set_target_properties(LibTorch::c10 PROPERTIES IMPORTED_LOCATION "${LibTorch_LIBRARY_DIR}/libc10.so")
  add_library(LibTorch::torch_cpu SHARED IMPORTED GLOBAL)
  # Includes of imported targets are SYSTEM. The stand-ins for gloo's headers come first. The build's RPATH gets the
  # wheel's lib directory from IMPORTED_LOCATION; from there libtorch_cpu finds the wheel's nvidia libraries itself.
  set_target_properties(LibTorch::torch_cpu PROPERTIES
    IMPORTED_LOCATION "${LibTorch_LIBRARY_DIR}/libtorch_cpu.so"
    INTERFACE_INCLUDE_DIRECTORIES
      "${CMAKE_CURRENT_LIST_DIR}/gloo_stubs;${LibTorch_ROOT}/include;${LibTorch_ROOT}/include/torch/csrc/api/include"
    INTERFACE_COMPILE_DEFINITIONS "USE_DISTRIBUTED;USE_C10D_GLOO;USE_RPC;USE_TENSORPIPE;NDEBUG"
    INTERFACE_LINK_LIBRARIES "LibTorch::c10;Threads::Threads"
    # libtorch_cpu of a CUDA wheel needs libcudart and libcupti, which the linker need not find.
    INTERFACE_LINK_OPTIONS "LINKER:--unresolved-symbols=ignore-in-shared-libs")
endif()

file(GLOB _libtorch_cuda_include LIST_DIRECTORIES true "${LibTorch_ROOT}/../nvidia/cu*/include"
  "${LibTorch_ROOT}/../nvidia/cuda_runtime/include")
list(FILTER _libtorch_cuda_include INCLUDE REGEX "(cu[0-9]+|cuda_runtime)/include$")
set(_libtorch_nccl_include "${LibTorch_ROOT}/../nvidia/nccl/include")
if(NOT TARGET LibTorch::torch_cuda AND EXISTS "${LibTorch_LIBRARY_DIR}/libtorch_cuda.so"
   AND EXISTS "${_libtorch_nccl_include}/nccl.h" AND _libtorch_cuda_include)
  list(GET _libtorch_cuda_include 0 _libtorch_cuda_include)
  add_library(LibTorch::c10_cuda SHARED IMPORTED GLOBAL)
  set_target_properties(LibTorch::c10_cuda PROPERTIES IMPORTED_LOCATION "${LibTorch_LIBRARY_DIR}/libc10_cuda.so")
  add_library(LibTorch::torch_cuda SHARED IMPORTED GLOBAL)
  set_target_properties(LibTorch::torch_cuda PROPERTIES
    IMPORTED_LOCATION "${LibTorch_LIBRARY_DIR}/libtorch_cuda.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_libtorch_nccl_include};${_libtorch_cuda_include}"
    INTERFACE_COMPILE_DEFINITIONS "USE_C10D_NCCL"
    INTERFACE_LINK_LIBRARIES "LibTorch::torch_cpu;LibTorch::c10_cuda"
    # Its kernels register themselves when it is loaded; nothing names them.
    INTERFACE_LINK_OPTIONS "LINKER:--no-as-needed")
endif()
