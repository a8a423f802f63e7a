"""Decides whether a run of the tester passed: judge.py KNOWN VERSION RESULTS...

KNOWN has a line for each kind of case that is known to fail: VERSION, FILE, CASE and REASON, separated by tabs. FILE
and CASE are prefixes of the tester's names. The exit status is 1 if another case fails, if a known case passes, or if
no case was run.
"""
import json
import os
import sys


def known(path, version):
    with open(path) as lines:
        rows = [line.rstrip('\n').split('\t') for line in lines if line.strip() and not line.startswith('#')]
    wrong = [row for row in rows if len(row) != 4 or not row[3]]
    if wrong:
        sys.exit('%s: a line must have VERSION, FILE, CASE and REASON: %s' % (path, wrong[0]))
    return [row for row in rows if row[0] == version]


def main(path, version, *results):
    rows = known(path, version)
    passed, expected, failed, fixed = 0, [], [], []
    for result in results:
        if not os.path.exists(result):
            sys.exit('%s: no case was run' % os.path.basename(result))
        with open(result) as lines:
            cases = [json.loads(line) for line in lines]
        if not cases:
            sys.exit('%s: no case was run' % os.path.basename(result))
        for case in cases:
            is_ok = case['result'] == 'OK'
            name = '%s: %s' % (case['file'], case['case'])
            row = next((r for r in rows if case['file'].startswith(r[1]) and case['case'].startswith(r[2])), None)
            if is_ok:
                passed += 1
            if is_ok and row:
                fixed.append(name)
            elif not is_ok and row:
                expected.append('%s (%s)' % (name, row[3]))
            elif not is_ok:
                failed.append(name)
    for title, names in (('known to fail', expected), ('FAILED', failed), ('PASSED, but is listed in known', fixed)):
        for name in names:
            print('%s: %s' % (title, name))
    print('OpenFlow %s: %d of %d cases pass, %d known to fail, %d failed' % (
        version, passed, passed + len(expected) + len(failed), len(expected), len(failed)))
    sys.exit(1 if failed or fixed else 0)


main(*sys.argv[1:])
