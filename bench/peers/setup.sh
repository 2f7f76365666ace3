#!/bin/sh
# Makes build/peers/bin/python, the Python of the peer benchmark: torch, transformers and nemo-automodel at pinned
# versions, about 0.6 GB to download. Safe to run again: what is there is skipped. Touches nothing outside build/peers.
#   bench/peers/setup.sh [FOLDER]     FOLDER = another place than build/peers
# nemo-automodel is installed without its dependencies (GPU packages of several GB); its model code on the torch back
# end needs the small ones named here. A CUDA build of torch also loads CUDA libraries without a GPU: an installed
# CUDA 13.0 toolkit has most of them, else they are installed too.
set -eu
cd "$(dirname "$0")/../.."
folder=${1:-build/peers}
torch_pin=$(sed -n 's/^torch_pin=\([0-9.]*\).*/\1/p' bootstrap)  # the one that Lethe is built with
pins="torch==$torch_pin transformers==5.23.0 nemo-automodel==0.7.0"
small='numpy safetensors pillow pyyaml regex tqdm filelock packaging jinja2 sympy networkx setuptools typing-extensions'
cuda='nvidia-cufile==1.15.1.6 nvidia-cusparselt-cu13==0.8.0 nvidia-nvshmem-cu13==3.4.5
  nvidia-cuda-cupti==13.0.85 nvidia-cuda-runtime==13.0.96'

say() { echo "setup.sh: $*"; }
ready() {
  "$folder/bin/python" -c 'import torch, transformers
from transformers.models.deepseek_v4 import DeepseekV4ForCausalLM
from nemo_automodel.components.models.deepseek_v4.model import DeepseekV4ForCausalLM' >"$folder/import.log" 2>&1
}
install() {  # pip also lists what --no-deps left out: shown only where it fails
  "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "$@" 2>"$folder/pip.log" ||
    { cat "$folder/pip.log" >&2; exit 1; }
}

if [ -x "$folder/bin/python" ] && ready; then
  say "$folder is ready, nothing to do"
  exit 0
fi
say "making $folder: $pins"
python3 -m venv "$folder"
install --no-deps $pins
install $small transformers==5.23.0
install --no-deps $cuda
if ! ready; then
  say "the CUDA libraries of torch are not on this machine: installing them all (2 GB)"
  install "torch==$torch_pin"
  ready || { tail -n 5 "$folder/import.log" >&2; say "error: the peers do not import" >&2; exit 1; }
fi
say "ready: $folder/bin/python"
