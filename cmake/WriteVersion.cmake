execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12 OUTPUT_VARIABLE hash OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT hash)
  set(hash unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} CONTENT [[#pragma once
#define MINIPIPE_VERSION "@VERSION@"
#define MINIPIPE_GIT_HASH "@hash@"
]] @ONLY)
