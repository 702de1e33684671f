# How ./test counts the cases of the programs that it runs. Sourced by ./test and by
# tools/counting-test, which proves that nothing vanishes here.
#
# Each count_* reads what a program printed and its exit status, and sets good, bad and skipped: how
# many cases passed, failed and were skipped. A program that ends badly without naming a failed case
# (a crash, a report of a sanitizer) counts as one failure, and so does a program that ran no case.
# shellcheck shell=bash disable=SC2034

# cmocka_sum LOG PASSED|FAILED|SKIPPED: the sum of the numbers before "test(s)" in cmocka's summaries;
# a program may run several groups.
cmocka_sum() {
    sed -n "s/^\[ *$2 *\] \([0-9][0-9]*\) test(s).*/\1/p" "$1" |
        awk '{ sum += $1 } END { print sum + 0 }'
}

count_cmocka() { # LOG STATUS
    good=$(cmocka_sum "$1" PASSED)
    bad=$(cmocka_sum "$1" FAILED)
    skipped=$(cmocka_sum "$1" SKIPPED)
    count_settle "$1" "$2"
}

# unittest_sum LOG EXPRESSION: the sum of the numbers in "EXPRESSION=N" of unittest's last line.
unittest_sum() {
    grep -aE '^(OK|FAILED)( \(|$)' "$1" | tail -n 1 | grep -oE "([(]|, )($2)=[0-9]+" |
        awk -F= '{ sum += $2 } END { print sum + 0 }' || true
}

count_unittest() { # LOG STATUS
    local ran
    ran=$(sed -n 's/^Ran \([0-9]*\) test.*/\1/p' "$1" | tail -n 1)
    bad=$(unittest_sum "$1" 'failures|errors|unexpected successes')
    skipped=$(unittest_sum "$1" skipped)
    # A failure or a skip of a whole class (in setUpClass) is none of the cases that ran.
    [ "${ran:-0}" -ge $((bad + skipped)) ] || ran=$((bad + skipped))
    good=$((ran - bad - skipped))
    count_settle "$1" "$2"
}

# The runners of the models and of the planted mistakes print their own sums.
count_models() { # LOG STATUS
    good=$(sed -n 's/^\([0-9]*\) passed, [0-9]* failed$/\1/p' "$1" | tail -n 1)
    bad=$(sed -n 's/^[0-9]* passed, \([0-9]*\) failed$/\1/p' "$1" | tail -n 1)
    good=${good:-0} bad=${bad:-0} skipped=0
    count_settle "$1" "$2"
}

# What an exit status and sums that disagree mean: see above.
count_settle() { # LOG STATUS
    if [ "$2" -ne 0 ] && [ "$bad" -eq 0 ]; then
        echo "exit status $2, and no case that failed" >>"$1"
        bad=1
    elif [ $((good + bad + skipped)) -eq 0 ]; then
        echo "no case ran" >>"$1"
        bad=1
    fi
}

# canary_rang LOG STATUS ARTIFACT: whether libFuzzer found the mistake that is planted in the canary,
# by itself: the status of a crash, the canary's own message, libFuzzer's verdict, and an input kept
# that begins with the three bytes. The path of the corpus, which libFuzzer prints, proves nothing.
canary_rang() {
    [ "$2" -eq 77 ] &&
        grep -qax 'canary: the planted mistake was found' "$1" &&
        grep -qa '^==[0-9]*== *ERROR: libFuzzer: deadly signal' "$1" &&
        [ -f "$3" ] && [ "$(head -c 3 "$3")" = bug ]
}

# skips_of LOG: what was skipped, one a line: cmocka's name of the case, unittest's reason.
skips_of() {
    sed -nE -e 's/^\[ *SKIPPED *\] ([^0-9].*)/\1/p' \
        -e "s/^(.*[.][.][.] )?skipped [\"'](.*)[\"']\$/\2/p" "$1" | sort -u
}

# skips_unnamed LIST PROGRAM LOG: prints those of skips_of that no line of LIST names for PROGRAM.
skips_unnamed() {
    local what program pattern why
    skips_of "$3" | while IFS= read -r what; do
        while IFS='|' read -r program pattern why; do
            program=$(trimmed "$program") pattern=$(trimmed "$pattern") why=$(trimmed "$why")
            case $program in '' | '#'*) continue ;; esac
            # shellcheck disable=SC2053 # they are patterns
            [[ $2 == $program && $what == $pattern && -n $why ]] && continue 2
        done <"$1"
        echo "$what"
    done
}

trimmed() {
    local word=$1
    word=${word#"${word%%[! ]*}"}
    printf '%s' "${word%"${word##*[! ]}"}"
}

# minimum_of LIST PART: how many cases a part has at least; 0 where the list does not know it.
minimum_of() {
    awk -v part="$2" '!/^#/ && $1 == part { least = $2 } END { print least + 0 }' "$1"
}

# verdict PASSED FAILED SKIPPED: the last line of ./test.
verdict() {
    if [ "$3" -eq 0 ]; then
        echo "$1 passed, $2 failed"
    else
        echo "$1 passed, $2 failed, $3 skipped"
    fi
}
