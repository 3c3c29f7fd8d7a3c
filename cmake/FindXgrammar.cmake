# xgrammar's C++ core with our limits, which scripts/setup.sh builds into .venv/xgrammar.
#
#   Xgrammar::xgrammar  the static library
find_path(XGRAMMAR_INCLUDE_DIR xgrammar/work_limit.h
          HINTS ${PROJECT_SOURCE_DIR}/.venv/xgrammar/include)
find_library(XGRAMMAR_LIBRARY xgrammar HINTS ${PROJECT_SOURCE_DIR}/.venv/xgrammar/lib)
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Xgrammar REQUIRED_VARS XGRAMMAR_LIBRARY XGRAMMAR_INCLUDE_DIR
  REASON_FAILURE_MESSAGE "(scripts/setup.sh builds it)")
if(Xgrammar_FOUND AND NOT TARGET Xgrammar::xgrammar)
  add_library(Xgrammar::xgrammar STATIC IMPORTED)
  set_target_properties(
    Xgrammar::xgrammar
    PROPERTIES IMPORTED_LOCATION ${XGRAMMAR_LIBRARY}
               INTERFACE_INCLUDE_DIRECTORIES ${XGRAMMAR_INCLUDE_DIR}
               INTERFACE_LINK_LIBRARIES Threads::Threads)
endif()
