"""Log lines as the training scripts and the compiler print them, and whatever else a log may hold."""

from __future__ import annotations

import math
import tracemalloc
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.jobs.log_lines import (
    BERT,
    MEGATRON,
    NEMO,
    NXDT,
    TITAN,
    TITAN_VALIDATES,
    TRAINER,
    usual,
)
from trainium_cdk.client.jobs.kinds import kinds
from trainium_cdk.client.jobs.metrics import job_log, parse_line, read_log
from trainium_cdk.client.jobs.report.curve import Curves
from trainium_cdk.runner.readers import log as reading
from trainium_cdk.runner.readers.log import JobLog, Lines
from trainium_cdk.runner.readers.records import (
    CacheStatus,
    CompileCount,
    CompileError,
    Evaluation,
    Record,
    Start,
    Step,
    reads,
)

OWN = "step 7/400 | train loss 3.4800 | lr 1e-4 | 812 ms | 12000 tok/s"
START = "trn: train: Slurm job 7 on compute1-dy-trn-[1-2], 2026-11-20T08:00:05Z"
COUNT = "2023-06-11 23:04:08.000738: INFO ||PARALLEL_COMPILE||: Total failed compilations: 0"
BAR = "Epoch {}:  75%|###############6    | 3/4 [00:03<00:09,  1.2it/s, loss=2.90, v_num=0]"
BERT_STEP = Step(14, 11.25, 2.8e-6, 6497.86)


@pytest.mark.parametrize(
    ("line", "records"),
    [
        (BERT, [BERT_STEP]),
        (f"[0]:{BERT}", [BERT_STEP]),
        (f"00: {BERT}", [BERT_STEP]),
        (BERT + "grad-norm : 1.5", [Step(14, 11.25, 2.8e-6, 6497.86, 1.5)]),
        (BERT + "seq/s grad-norm : 1.5", [Step(14, 11.25, 2.8e-6, 6497.86, 1.5)]),
        (BERT.replace("11.2500", "nan"), [Step(14, None, 2.8e-6, 6497.86)]),
        (BERT * 2, [BERT_STEP] * 2),
        (MEGATRON, [Step(64, 7.28125, 4.956e-5, 140.022, 3.562, 143051, 1024, 7.3131)]),
        (f"15: {MEGATRON}{MEGATRON}", [Step(64, 7.28125, 4.956e-5, 140.022, 3.562, 143051, 1024, 7.3131)] * 2),
        (NEMO, [Step(188, 7.56, total_steps=301501, seconds=18.79)]),
        (NEMO.replace("188.0", "1.88e+2"), [Step(188, 7.56, total_steps=301501, seconds=18.79)]),
        (NXDT, [Step(1, 6.93, 2.73e-5, 0.108, 8.6, 62, seconds=50)]),
        (TITAN, [Step(10, 10.2954, grad_norm=1.4273, tokens_per_second=1532.0)]),
        (TITAN_VALIDATES, [Evaluation(10, 10.3011)]),
        (TRAINER, [Step(None, 2.3051, 4.8e-5, grad_norm=1.25)]),
        (f"0: {TRAINER}", [Step(None, 2.3051, 4.8e-5, grad_norm=1.25)]),
        (f"00: {TRAINER}", [Step(None, 2.3051, 4.8e-5, grad_norm=1.25)]),
        (TRAINER.replace("2.3051", "np.float64(2.3051)"), [Step(None, 2.3051, 4.8e-5, grad_norm=1.25)]),
        (TRAINER.replace("}", ", 'step': 500}"), [Step(500, 2.3051, 4.8e-5, grad_norm=1.25)]),
        ("Sanity Checking:  50%|#####     | 1/2 [00:01<00:01,  1.0it/s]", []),
        (BAR.format(0), [Step(3, 2.9, total_steps=4, seconds=1 / 1.2)]),
        (BAR.format(2), [Step(11, 2.9, seconds=1 / 1.2)]),
        (BAR.format(2).replace("loss", "train_loss"), [Step(11, 2.9, seconds=1 / 1.2)]),
        (BAR.format(2).replace("v_num=0", "global_step=5.0"), [Step(5, 2.9, seconds=1 / 1.2)]),
        (BAR.format(0).replace("Epoch", "Validation DataLoader"), [Evaluation(None, 2.9)]),
        (BAR.format(0).replace("Epoch 0: ", "Training: "), [Step(3, 2.9, total_steps=4, seconds=1 / 1.2)]),
        (BAR.format(0).replace("Epoch 0: ", ""), [Step(3, 2.9, total_steps=4, seconds=1 / 1.2)]),
        (f"[eval] {TITAN}", [Evaluation(10, 10.2954)]),
        (f"val {TITAN.partition('- INFO - ')[2]}", [Evaluation(10, 10.2954)]),
        ("step: 10  loss: 2.1  lr: 1e-4", [Step(10, 2.1, 1e-4)]),
        (
            MEGATRON.replace("lm loss", "lm_loss"),
            [Step(64, 7.28125, 4.956e-5, 140.022, 3.562, 143051, 1024, 7.3131, unit="per second")],
        ),
        (
            COUNT,
            [CompileCount("failed", 0)],
        ),
        (
            "2024-11-07 09:57:13.000144:  39810  INFO ||NEURON_PARALLEL_COMPILE||: Total graphs: 36"
            "2024-11-07 09:57:13.000144:  39811  INFO ||NEURON_PARALLEL_COMPILE||: Total successful compilations: 35",
            [CompileCount("graphs", 36), CompileCount("successful", 35)],
        ),
        (
            "ERROR ||PARALLEL_COMPILE||: parallel compilation with neuronx-cc exited with error.Received error code: -9",
            [CompileError(-9)],
        ),
        (
            "INFO ||NEURON_CACHE||: Current remaining items are 0, locked are 2, failed are 0, done are 32, total is 34",
            [CacheStatus(0, 2, 0, 32, 34)],
        ),
        (
            START,
            [Start("train", 1795161605)],
        ),
        (
            "0: trn: precompile: node 0 of 2, ranks 0 to 31, on ip-10-0-1-2, attempt 1, 2026-11-20T08:00:05Z",
            [Start("precompile", 1795161605, 1)],
        ),
        (START.replace("[1-2]", f"[{','.join(map(str, range(1, 999, 2)))}]"), [Start("train", 1795161605)]),
        ("trn: train: Slurm job 7 on n, 2026-02-31T08:00:05Z", []),
        ("nothing of interest", []),
        ("", []),
    ],
)
def test_a_line(line: str, records: list[Record]) -> None:
    assert list(parse_line(line)) == records
    assert list(parse_line(line.encode())) == records


@given(
    st.lists(
        st.one_of(st.binary(max_size=60), st.sampled_from([x.encode() for x in (BERT, MEGATRON, NEMO, NXDT)])),
        max_size=6,
    )
)
def test_any_bytes_are_parsed_without_an_error(parts: list[bytes]) -> None:
    for record in parse_line(b"".join(parts)):
        if isinstance(record, Step):
            assert record.step >= 0
            assert record.loss is None or math.isfinite(record.loss)


LINES = [x.encode() for x in (BERT, MEGATRON, NEMO, NXDT, TITAN, TRAINER, OWN, START, COUNT)]


@given(
    st.lists(
        st.one_of(st.sampled_from([*LINES, b"\n", b"\r", b"loss", b"iteration ", b"trn: "]), st.binary(max_size=20))
    )
)
def test_the_lines_that_are_skipped_have_no_record(parts: list[bytes]) -> None:
    log = b"".join(parts)
    every = Lines(reader for kind in kinds().values() for reader in kind.LOGS)
    every.marks = [b""]
    found = JobLog(every)
    assert read_log(log) == [record for _, record in [*found.feed("train", log), *found.close()]]


def added(records: list[Record]) -> Curves:
    curves = Curves()
    for record in records:
        if isinstance(record, (Step, Evaluation)):
            curves.add(record)
    return curves


def test_a_line_beyond_what_is_read() -> None:
    for before in (reading.LONGEST_LINE - 60, reading.LONGEST_LINE):
        line = b"x" * before + usual(7)
        assert read_log(line + usual(8)) == [*parse_line(line), *parse_line(usual(8))]


@pytest.mark.parametrize(("marked", "looked_at"), [(True, 1), (False, 1001)])
def test_only_lines_with_a_mark_are_looked_at(marked: bool, looked_at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind of another package whose reader has no marks reads every line."""
    seen: list[str] = []

    def look(text: str) -> Iterator[tuple[int, Step]]:
        seen.append(text)
        return iter(())

    log = JobLog(Lines([reads("loss=")(look) if marked else look]))
    other = b"INFO ||NEURON_CC_WRAPPER||: Using a cached neff\n"
    log.feed("train", other * 1000 + NEMO.replace("7.560", "nan").encode() + b"\n")
    assert len(seen) == looked_at


def test_a_log_takes_constant_memory() -> None:
    """Four times as long a log, not four times the memory."""
    peaks = []
    for pieces in (8, 32):
        log, text = job_log(), b"".join(map(usual, range(300)))
        tracemalloc.start()
        for _ in range(pieces):
            log.feed("train", text)
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[1] < 1.5 * peaks[0]


@given(st.data())
def test_chunk_boundaries_of_a_log_do_not_matter(data: st.DataObject) -> None:
    log = f"begin\r{NEMO}\r{NXDT}\r\n{BERT}\n\xff{MEGATRON}\n{BERT.replace('14', '15')}".encode("latin-1")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=8)))
    cut, expected = job_log(), read_log(log)
    found: list[tuple[str, Record]] = []
    for begin, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        found += cut.feed("train", log[begin:end])
    assert [record for _, record in [*found, *cut.close()]] == expected
    assert len(expected) == 5


@pytest.mark.parametrize("size", [300_000, 5_000_000])
def test_of_a_line_without_an_end_only_the_begin_is_kept(size: int) -> None:
    log, line = job_log(), BERT.encode().ljust(size) + BERT.encode()
    for begin in range(0, len(line), 70_000):
        assert log.feed("train", line[begin : begin + 70_000]) == []
    assert len(log._rest) == reading.LONGEST_LINE
    found = log.feed("train", b"\n" + BERT.encode() + b"\n")
    assert [record for _, record in found] == [*parse_line(line), *parse_line(BERT)]
    assert len(parse_line(line)) == 1


HOSTILE = ["1", "1.", "| 1/1 [", "a", "-", " ", "iteration 1/1 |", "iteration ", "lm loss: ", "|", "[", "LOG ", "e1"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("begin", ["", BERT.partition("11.25")[0], "iteration 1/1 |", "| 1/1 [", "| 1/1 [loss="])
@pytest.mark.parametrize("piece", HOSTILE)
def test_no_line_takes_long(begin: str, piece: str) -> None:
    """A regular expression that looks twice at each digit would take hours for one of these."""
    list(parse_line(begin + piece * 300_000))


def fed(*stages: tuple[str, bytes]) -> JobLog:
    log = job_log()
    for stage, text in stages:
        log.feed(stage, text)
    log.close()
    return log


def test_the_throughput_excludes_the_warm_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "WARMUP", 2)
    lines = [usual(at).replace(b"%.2f" % (7e3 - at), b"%.2f" % speed) for at, speed in enumerate([1, 1, 100, 110])]
    assert fed(("train", b"".join(lines[:2]))).throughput == 1
    assert fed(("train", b"".join(lines))).throughput == 105


def test_figures_are_of_the_training_alone() -> None:
    """Of a precompile, the graphs of all nodes count, but none of the steps that it tries."""
    count = b"INFO ||PARALLEL_COMPILE||: Total graphs: 6\n"
    error = b"PARALLEL_COMPILE||: parallel compilation with neuronx-cc exited with error.Received error code: -9\n"
    start = START.encode() + b"\n"
    log = fed(("precompile", count * 2 + error + usual(1) * 2 + start), ("train", start + usual(7) + usual(8)))
    assert (log.compiled, log.errors) == ({"graphs": 12}, [-9])
    assert (log.steps, log.last and log.last.step, log.throughput) == (2, 8, 6992.5)
    assert log.starts == {"train": [Start("train", 1795161605)]}
    assert [len(log.tail(stage)) for stage in ("precompile", "train", "prepare")] == [6, 3, 0]


def test_a_stage_ends_the_last_line_of_the_one_before() -> None:
    log = job_log()
    assert log.feed("precompile", usual(1)[:-1]) == []
    assert log.feed("train", b"a line\n" + usual(2)[:-1]) == [("precompile", *parse_line(usual(1)))]
    assert log.close() == [("train", *parse_line(usual(2)))]


@pytest.mark.parametrize("begin", ["0: ", "[rank0]:", "", "3: ", "0: [default7]:"])
def test_of_several_that_print_the_same_steps_the_first_is_taken(begin: str) -> None:
    log = "".join(
        f"{by}step {at} loss {at + 1}.{number}\n"
        for at in range(3)
        for number, by in enumerate([begin, "1: ", "[rank1]:"])
    )
    found = read_log(log.encode())
    assert found == [Step(at, at + 1.0) for at in range(3)]


def test_a_program_that_is_known_tells_a_step_once() -> None:
    again = "Epoch 0 step 14 file index 3 end Fri Nov 27 03:52:27 2026 loss 11.25 perf 5.139 seq/sec (at train microstep 12)"
    assert read_log(f"{BERT}\n{again}\n".encode()) == [BERT_STEP]
    assert read_log(f"{again}\n".encode()) == [Step(14, 11.25, None, 5.139, unit="sequences/s")]


def test_the_epochs_of_a_bar_are_one_course() -> None:
    log = "".join(f"\r{BAR.format(epoch).replace('3/4', f'{at}/4')}" for epoch in range(3) for at in (1, 2, 3, 4))
    validation = f"\r{BAR.format(0).replace('Epoch', 'Validation DataLoader')}"
    curves = added(read_log((log + validation + "\n").encode()))
    assert [at for at, _ in curves["loss"].all()] == [*range(1, 13)]


def test_a_validation_does_not_change_the_curve() -> None:
    log = "step: 10  loss: 2.1\nstep: 20  loss: 1.9\nval step: 20  loss: 5.1\nstep: 30  loss: 1.8\n[eval] step: 30  loss: 5.0\n"
    steps: list[Record] = [Step(10, 2.1), Step(20, 1.9), Evaluation(20, 5.1), Step(30, 1.8), Evaluation(30, 5.0)]
    assert read_log(log.encode()) == steps
    assert added(steps)["loss"].all() == [(10, 2.1), (20, 1.9), (30, 1.8)]
    assert added(steps)["validation_loss"].all() == [(20, 5.1), (30, 5.0)]
    assert fed(("train", log.encode())).last == Step(30, 1.8)


@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_steps_that_every_node_prints_are_counted_once(nodes: int) -> None:
    lines = [TRAINER.replace("2.3051", f"{3 - n / 100:.4f}") for n in range(200)]
    log = "".join(f"{node:0{len(str(nodes - 1))}}: {line}\n" for line in lines for node in range(nodes))
    found = fed(("train", log.encode()))
    assert (found.steps, found.first_loss, found.last and found.last.loss) == (
        200,
        3,
        1.01,
    )
