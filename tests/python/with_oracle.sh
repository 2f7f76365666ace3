#!/bin/sh
# Runs a Python script by the first Python that can import a package: the one of ./bootstrap, then python3.
#   with_oracle.sh PACKAGE SCRIPT WORD...     exit code 77: neither can
package=$1
shift
for python in "$(dirname "$0")/../../.venv/bin/python" python3; do
  "$python" -c "import $package" 2>/dev/null && exec "$python" "$@"
done
echo "with_oracle.sh: skipped: no Python has the package '$package'; ./bootstrap --oracles installs it" >&2
exit 77
