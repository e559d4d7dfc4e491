# Flags for all of our code, and the functions that declare a room (a folder of src/) and a test.

find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)

add_library(pn_flags INTERFACE)
target_compile_definitions(pn_flags INTERFACE _GNU_SOURCE)
target_include_directories(pn_flags INTERFACE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
# -ffp-contract=off: the float orders of docs/KERNELS are contract; a fused multiply-add is written.
target_compile_options(pn_flags INTERFACE
    -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
    -Wcast-qual -ffp-contract=off -fno-math-errno $<$<BOOL:${PN_WERROR}>:-Werror>)
if(PN_SANITIZE)
    target_compile_options(pn_flags INTERFACE -fsanitize=${PN_SANITIZE} -fno-omit-frame-pointer
        -fno-sanitize-recover=all)
    target_link_options(pn_flags INTERFACE -fsanitize=${PN_SANITIZE})
endif()
target_link_libraries(pn_flags INTERFACE Threads::Threads m)

# pn_room(NAME SOURCES files... [LIBS external targets...])
# One OBJECT library a folder, called pn_NAME. What a room may include is checked by
# scripts/check_includes.py; objects are linked together in libpannier.
function(pn_room name)
    cmake_parse_arguments(R "" "" "SOURCES;LIBS" ${ARGN})
    add_library(pn_${name} OBJECT ${R_SOURCES})
    target_link_libraries(pn_${name} PUBLIC pn_flags ${R_LIBS})
    set_property(GLOBAL APPEND PROPERTY PN_ROOMS pn_${name})
    set_property(GLOBAL APPEND PROPERTY PN_ROOM_LIBS ${R_LIBS})
endfunction()

# pn_test(NAME LABEL kind SOURCES files... ROOMS rooms... [ARGS args...])
# A cmocka program linked to the rooms it names. Exit code 77 means skipped, and it says why.
function(pn_test name)
    cmake_parse_arguments(T "" "LABEL;TIMEOUT" "SOURCES;ROOMS;ARGS" ${ARGN})
    add_executable(${name} ${T_SOURCES})
    target_link_libraries(${name} PRIVATE pn_flags ${PN_CMOCKA} ${T_ROOMS})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_compile_definitions(${name} PRIVATE
        PN_TEST_DATA="${PROJECT_SOURCE_DIR}/tests/data"
        PN_TEST_SHARED="${PROJECT_SOURCE_DIR}/../shared")
    target_compile_options(${name} PRIVATE -Wno-conversion -Wno-cast-qual)
    add_test(NAME ${name} COMMAND ${name} ${T_ARGS})
    if(NOT T_TIMEOUT)
        set(T_TIMEOUT 300)
    endif()
    set_tests_properties(${name} PROPERTIES LABELS "${T_LABEL}" SKIP_RETURN_CODE 77
        TIMEOUT ${T_TIMEOUT} SKIP_REGULAR_EXPRESSION "")
endfunction()
