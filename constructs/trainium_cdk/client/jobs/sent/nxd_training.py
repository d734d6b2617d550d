"""Completes the environment of NxD Training as the vendor's training images have it: NeMo, Apex and Megatron's core by the vendor's own
requirements and scripts. Where the cluster or the image has these, only NeMo's helper is compiled.

nxd_training.py CONTAINERS APEX: folders of the vendor's and of Apex's source. It runs in the environment, after pip; VIRTUAL_ENV and
PIP_CONSTRAINT are set.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

MODULES = ("apex", "megatron", "nemo")
HELPER = "collections/nlp/data/language_modeling/megatron"
PINS = """
absl-py==2.4.0 aiobotocore==2.17.0 aiohappyeyeballs==2.6.1 aiohttp==3.13.3 aioitertools==0.13.0 aiosignal==1.4.0 aniso8601==10.0.1
annotated-types==0.7.0 antlr4-python3-runtime==4.9.3 asciitree==0.3.3 async-timeout==5.0.1 attrs==25.4.0 beautifulsoup4==4.14.3
blinker==1.9.0 boto3==1.35.93 botocore==1.35.93 braceexpand==0.1.7 certifi==2026.2.25 charset-normalizer==3.4.4 click==8.3.1
colorama==0.4.6 coverage==7.13.4 cycler==0.12.1 datasets==3.0.0 dill==0.3.8 donfig==0.8.1.post1 einops==0.8.2 exceptiongroup==1.3.1
faiss-cpu==1.13.2 fasteners==0.20 filelock==3.24.3 flask==3.1.3 flask-restful==0.3.10 fonttools==4.61.1 frozenlist==1.8.0
fsspec==2024.6.1 ftfy==6.3.1 gdown==5.2.1 gitdb==4.0.12 gitpython==3.1.46 google-crc32c==1.8.0 grpcio==1.78.0 h5py==3.15.1
hf-xet==1.3.2 huggingface-hub==0.36.2 hydra-core==1.3.2 idna==3.11 ijson==3.5.0 inflect==7.5.0 iniconfig==2.3.0 ipadic==1.0.0
itsdangerous==2.2.0 jieba==0.42.1 jinja2==3.1.6 jmespath==1.1.0 joblib==1.5.3 kiwisolver==1.4.9 lightning==2.5.0
lightning-utilities==0.15.3 llvmlite==0.43.0 lockfile==0.12.2 lxml==6.0.2 markdown==3.10.2 markdown-it-py==4.0.0 markupsafe==3.0.3
matplotlib==3.10.8 mdurl==0.1.2 mecab-python3==1.0.12 ml-dtypes==0.5.0 more-itertools==10.8.0 mpmath==1.3.0 multidict==6.7.1
multiprocess==0.70.16 nemo-toolkit==2.1.0 ninja==1.13.0 nltk==3.9.3 numba==0.60.0 numpy==1.26.4 omegaconf==2.2.3 onnx==1.17.0
opencc==1.1.9 pangu==4.0.6.1 pillow==12.1.1 platformdirs==4.9.2 pluggy==1.6.0 portalocker==3.2.0 propcache==0.4.1 protobuf==3.20.3
psutil==7.2.2 pulp==3.3.0 pyarrow==23.0.1 pydantic==2.12.5 pydantic-core==2.41.5 pygments==2.19.2 pyparsing==3.3.2 pysocks==1.7.1
pytest==9.0.2 pytest-cov==7.0.0 pytest-mock==3.15.1 pytest-random-order==1.2.0 python-daemon==3.1.2 python-dateutil==2.9.0.post0
pytorch-lightning==2.5.0 pytz==2025.2 pyyaml==6.0.1 rapidfuzz==3.14.3 regex==2026.2.19 requests==2.32.4 rich==14.3.3
rouge-score==0.1.2 ruamel-yaml==0.19.1 s3fs==2024.6.1 s3transfer==0.10.4 sacrebleu==2.6.0 sacremoses==0.1.1 safetensors==0.7.0
sentence-transformers==5.2.3 sentencepiece==0.2.1 sentry-sdk==2.53.0 six==1.17.0 smmap==5.0.2 soupsieve==2.8.3 sympy==1.14.0
tabulate==0.9.0 tensorboard==2.20.0 tensorboard-data-server==0.7.2 tensorstore==0.1.45 text-unidecode==1.3 threadpoolctl==3.6.0
tiktoken==0.12.0 tokenizers==0.22.2 tomli==2.4.0 torchmetrics==0.10.3 tqdm==4.67.3 transformers==4.56.2 typeguard==4.5.1
typing-extensions==4.15.0 typing-inspection==0.4.2 tzdata==2025.3 urllib3==2.6.3 wandb==0.25.0 wcwidth==0.6.0 webdataset==0.1.62
werkzeug==3.1.6 wget==3.2 wrapt==1.17.3 xxhash==3.6.0 yarl==1.22.0 youtokentome==1.0.6
"""
"""What the vendor's list leaves open, as of the day of that image (PyPI on 2026-02-26, without PyTorch and what belongs to it): NeMo does not
import with today's pangu and pyarrow."""
BY_PYTHON = """
contourpy==1.3.2; python_version == "3.10"
contourpy==1.3.3; python_version > "3.10"
networkx==3.4.2; python_version == "3.10"
networkx==3.6.1; python_version > "3.10"
numcodecs==0.13.1; python_version == "3.10"
numcodecs==0.16.5; python_version > "3.10"
pandas==2.3.3; python_version == "3.10"
pandas==3.0.1; python_version > "3.10"
scikit-learn==1.7.2; python_version == "3.10"
scikit-learn==1.8.0; python_version > "3.10"
scipy==1.15.3; python_version == "3.10"
scipy==1.17.1; python_version > "3.10"
zarr==2.18.3; python_version == "3.10"
zarr==3.1.5; python_version > "3.10"
"""


def install(containers: Path, apex: Path, work: Path) -> None:
    """Install what the vendor's image has."""
    work.mkdir()
    shutil.copytree(apex, work / "apex", symlinks=True)
    shutil.copyfile(containers / "common/apex_setup.py", work / "apex/setup.py")
    with Path(os.environ["PIP_CONSTRAINT"]).open("a") as limits:
        limits.write("\n".join([*PINS.split(), *BY_PYTHON.strip().splitlines(), ""]))
    listed = containers / "common/nxdt_requirements.txt"
    pip = [sys.executable, "-m", "pip", "install", "--no-build-isolation", "-r", str(listed), str(work / "apex")]
    subprocess.run(pip, check=True)
    subprocess.run(["bash", str(containers / "common/nxdt_install_setup.sh")], cwd=work, check=True)
    shutil.rmtree(work)


def compile_helper() -> None:
    """Compile NeMo's helper in this environment. Rank 0 would do so before it trains: in a pod it could not, as NeMo is in the image."""
    importlib.invalidate_caches()
    found = importlib.util.find_spec("nemo")
    if found is None or not found.submodule_search_locations:
        raise OSError("the package nemo is not there after it was installed")
    nemo, own = Path(found.submodule_search_locations[0]), Path(sysconfig.get_path("purelib")) / "nemo"
    if nemo != own:
        shutil.copytree(nemo, own, symlinks=True)
    subprocess.run(["make", "-C", str(own / HELPER)], check=True)


def main(containers: str, apex: str) -> None:
    if not all(map(importlib.util.find_spec, MODULES)):
        install(Path(containers), Path(apex), Path(os.environ["VIRTUAL_ENV"]) / "build")
    compile_helper()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (OSError, subprocess.CalledProcessError) as e:
        sys.exit(f"trn: NxD Training could not be installed: {e}")
