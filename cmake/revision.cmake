# Writes HEADER with the revision of SOURCE, if it is another than before. Run at every build: the tree that is
# built is what a study file names, not the one that was configured some day.
execute_process(COMMAND git -C ${SOURCE} describe --always --dirty --abbrev=12
    OUTPUT_VARIABLE revision OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
if(NOT revision)
    set(revision unknown)
endif()
set(text "#define SCALESTUDY_REVISION \"${revision}\"\n")
set(old "")
if(EXISTS ${HEADER})
    file(READ ${HEADER} old)
endif()
if(NOT old STREQUAL text)
    file(WRITE ${HEADER} ${text})
endif()
