#!/bin/sh
# Runs a Python script by the first Python that can import a package: the one of ./bootstrap, that of the peer
# benchmark, then python3.
#   with_oracle.sh PACKAGE SCRIPT WORD...     exit code 77: neither can
package=$1
shift
root=$(dirname "$0")/../..
for python in "$root/.venv/bin/python" "$root/build/peers/bin/python" python3; do
  "$python" -c "import $package" 2>/dev/null && exec "$python" "$@"
done
echo "with_oracle.sh: skipped: no Python has the package '$package'; ./bootstrap --oracles installs" \
  "tokenizers, bench/peers/setup.sh torch and transformers" >&2
exit 77
