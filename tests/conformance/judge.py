"""What the tester's results come to: judge.py KNOWN VERSION RESULTS..

KNOWN has a line for each kind of case that is known to fail: VERSION, FILE, CASE, REASON between tabs; FILE and CASE
are beginnings of what the tester calls them. Fails when another case fails, when a known one passes, or when
nothing was run.
"""
import json
import os
import sys


def known(path, version):
    with open(path) as lines:
        rows = [line.rstrip('\n').split('\t') for line in lines if line.strip() and not line.startswith('#')]
    wrong = [row for row in rows if len(row) != 4 or not row[3]]
    if wrong:
        sys.exit('%s: not VERSION, FILE, CASE, REASON: %s' % (path, wrong[0]))
    return [row for row in rows if row[0] == version]


def main(path, version, *results):
    rows = known(path, version)
    passed, expected, failed, mended = 0, [], [], []
    for result in results:
        if not os.path.exists(result):
            sys.exit('%s: no case was run' % os.path.basename(result))
        with open(result) as lines:
            cases = [json.loads(line) for line in lines]
        if not cases:
            sys.exit('%s: no case was run' % os.path.basename(result))
        for case in cases:
            well = case['result'] == 'OK'
            name = '%s: %s' % (case['file'], case['case'])
            row = next((r for r in rows if case['file'].startswith(r[1]) and case['case'].startswith(r[2])), None)
            if well:
                passed += 1
            if well and row:
                mended.append(name)
            elif not well and row:
                expected.append('%s (%s)' % (name, row[3]))
            elif not well:
                failed.append(name)
    for title, names in (('known to fail', expected), ('FAILED', failed), ('PASSED, and is in known', mended)):
        for name in names:
            print('%s: %s' % (title, name))
    print('OpenFlow %s: %d of %d cases pass, %d known to fail, %d failed' % (
        version, passed, passed + len(expected) + len(failed), len(expected), len(failed)))
    sys.exit(1 if failed or mended else 0)


main(*sys.argv[1:])
