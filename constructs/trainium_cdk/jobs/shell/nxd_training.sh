# shellcheck shell=bash
# NxD Training as the vendor's training images have it: NeMo, Apex and Megatron's core by their own requirements and scripts. Where
# the cluster or the image has these, only NeMo's helper is compiled.
: "${trn:?}" "${containers_url:?}" "${containers_ref:?}" "${apex_url:?}" "${apex_ref:?}"
for tool in g++ make python3-config; do
  if ! command -v "$tool" > /dev/null; then
    printf 'trn: there is no %s here, which NeMo needs. Install it (python3-config is in python3-dev), or use an image that has it\n' "$tool" >&2
    exit 4
  fi
done

steps() {
  local containers=$trn/src/containers-$containers_ref work=$VIRTUAL_ENV/build packages nemo
  if ! python3 -c 'import importlib.util as u; raise SystemExit(not all(map(u.find_spec, ["apex", "megatron", "nemo"])))'; then
    source_tree containers "$containers_url" "$containers_ref"
    source_tree apex "$apex_url" "$apex_ref"
    mkdir "$work"
    cp -r "$trn/src/apex-$apex_ref" "$work/apex"
    cp "$containers/common/apex_setup.py" "$work/apex/setup.py"
    pip install --no-build-isolation -r "$containers/common/nxdt_requirements.txt" "$work/apex"
    (cd "$work" && bash "$containers/common/nxdt_install_setup.sh")
    rm -rf "$work"
  fi
  # before it trains, rank 0 compiles this helper unless it is there: in a pod it could not, as NeMo is in the image
  packages=$(python3 -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
  nemo=$(python3 -c 'import importlib.util as u; print(u.find_spec("nemo").submodule_search_locations[0])')
  if [ "$nemo" != "$packages/nemo" ]; then cp -r "$nemo" "$packages/nemo"; fi
  make -C "$packages/nemo/collections/nlp/data/language_modeling/megatron"
}
