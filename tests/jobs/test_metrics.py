"""Log lines as the training scripts and the compiler print them, and whatever else a log may hold."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.jobs.log_lines import (
    BERT,
    MEGATRON,
    NEMO,
    NXDT,
    TITAN,
    TITAN_VALIDATES,
    TRAINER,
    USUAL,
    nxdt,
    titan,
    usual,
)
from trainium_cdk.jobs import metrics
from trainium_cdk.jobs import records as of_logs
from trainium_cdk.jobs.metrics import (
    CacheStatus,
    CompileCount,
    CompileError,
    Follower,
    Record,
    Start,
    Step,
    Summary,
    parse_line,
)
from trainium_cdk.jobs.records import Reader, Steps, _values, reads
from trainium_cdk.jobs.report.curve import Curves

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
        (NEMO, [Step(188, 7.56, total_steps=301501)]),
        (NEMO.replace("188.0", "1.88e+2"), [Step(188, 7.56, total_steps=301501)]),
        (NXDT, [Step(1, 6.93, 2.73e-5, 0.108, 8.6, 62)]),
        (TITAN, [Step(10, 10.2954, grad_norm=1.4273, tokens_per_second=1532.0)]),
        (TITAN_VALIDATES, []),
        (TRAINER, [Step(None, 2.3051, 4.8e-5, grad_norm=1.25)]),
        (f"0: {TRAINER}", [Step(None, 2.3051, 4.8e-5, grad_norm=1.25)]),
        (f"00: {TRAINER}", [Step(None, 2.3051, 4.8e-5, grad_norm=1.25)]),
        (f"1: {TRAINER}", []),
        (f"010: {TRAINER}", []),
        (TRAINER.replace("2.3051", "np.float64(2.3051)"), [Step(None, 2.3051, 4.8e-5, grad_norm=1.25)]),
        (TRAINER.replace("}", ", 'step': 500}"), [Step(500, 2.3051, 4.8e-5, grad_norm=1.25)]),
        ("Sanity Checking:  50%|#####     | 1/2 [00:01<00:01,  1.0it/s]", []),
        (BAR.format(0), [Step(3, 2.9, total_steps=4)]),
        (BAR.format(2), [Step(11, 2.9)]),
        (BAR.format(2).replace("loss", "train_loss"), [Step(11, 2.9)]),
        (BAR.format(2).replace("v_num=0", "global_step=5.0"), [Step(5, 2.9)]),
        (BAR.format(0).replace("Epoch", "Validation DataLoader"), []),
        (BAR.format(0).replace("Epoch 0: ", "Training: "), [Step(3, 2.9, total_steps=4)]),
        (BAR.format(0).replace("Epoch 0: ", ""), [Step(3, 2.9, total_steps=4)]),
        (f"[eval] {TITAN}", []),
        (f"val {TITAN.partition('- INFO - ')[2]}", []),
        ("step: 10  loss: 2.1  lr: 1e-4", [Step(10, 2.1, 1e-4)]),
        (MEGATRON.replace("lm loss", "lm_loss"), [Step(64, 7.28125, 4.956e-5, None, 3.562, 143051, 1024, 7.3131)]),
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
    log, reader = b"".join(parts), Follower()
    lines = log.replace(b"\r", b"\n").split(b"\n")
    assert [*reader.feed(log), *reader.close()] == [record for line in lines for record in parse_line(line)]


ODD = (
    "-2.5", "1.", ".5", "2", "1.5.2", "1e5", "nan", "NaN", "inf", "-inf", "1_0.5", "1" * 15 + ".5", "9" * 16 + ".5", "2.5e+20", "2.5e-00006",
    "2.5e-99999", "1e00005", "2.5-", "1.5-2", ".", "5." + "1" * 31, "1" * 31, "1e400", "1E5", "+1", "1,234", "12,34", "1" * 16, "-1", "٣", "",
)  # fmt: skip
PIECES = (
    "\x1b[1m", "trn: ", "é", "loss=", "iteration 1/ 2 |", "a - (0, 1) step_loss : 5.5 ", "step: 5 ", "step: 5 loss: 3 ", "'loss': 1.5", "\n", "\r",
    " ", "]", "| 5/6 [", "{'loss': 5.5} ", ", 'learning_rate': 7.5", ", lr=7.5", "🙂" * 6, "\t", "_", "LOG ", "seq/s", "'", "\x00", BERT, "x" * 600,
)  # fmt: skip


@st.composite
def lines_of(draw: st.DrawFn) -> bytes:
    """Lines of one program or two, some of which are a little different at any place."""
    programs = draw(st.lists(st.sampled_from(sorted(USUAL)), min_size=1, max_size=2))
    made = []
    for step in draw(st.lists(st.integers(0, 30), max_size=12)):
        line = USUAL[draw(st.sampled_from(programs))](step)
        parts = re.split(r"([0-9][0-9.]*)", line.decode())
        change = draw(st.sampled_from(["none", "none", "number", "place", "other"]))
        if change == "number":
            parts[2 * draw(st.integers(0, len(parts) // 2 - 1)) + 1] = draw(st.sampled_from(ODD))
        elif change == "place":
            parts.insert(draw(st.integers(0, len(parts))), draw(st.sampled_from(PIECES)))
        made.append(draw(st.sampled_from(LINES)) + b"\n" if change == "other" else "".join(parts).encode())
    return b"".join(made)


def added(records: list[Record | Steps]) -> Curves:
    curves = Curves()
    for record in records:
        if isinstance(record, Step | Steps):
            curves.add(Steps.of(record) if isinstance(record, Step) else record)
    return curves


@settings(max_examples=600)
@given(lines_of(), st.lists(st.integers(0, 3000), max_size=4))
def test_many_lines_at_once_are_read_as_each_alone(log: bytes, cuts: list[int]) -> None:
    many, single, found = Follower(), Follower(), list[Record | Steps]()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "_PIECES", (1000, 500, 250))
        for begin, end in zip([0, *sorted(cuts)], [*sorted(cuts), len(log)], strict=True):
            found += many.feed_many(log[begin:end])
        found += many.close()
    # of a script's own lines, those of the first worker that prints them
    lines = [record for line in log.replace(b"\r", b"\n").split(b"\n") for record in single._line(line)]
    for record in lines:
        single.summary.add(record)
    assert [one for record in found for one in (record if isinstance(record, Steps) else [record])] == lines
    assert many.summary.throughput == pytest.approx(single.summary.throughput)
    assert replace(many.summary, _sum=0) == replace(single.summary, _sum=0)
    of_many, expected = added(found), added(lines)
    assert (of_many, of_many.step, of_many.last) == (expected, expected.step, expected.last)


@settings(max_examples=500)
@given(
    st.lists(st.from_regex(of_logs.USUAL, fullmatch=True), min_size=1, max_size=9), st.sampled_from(["loss", "step"])
)
def test_numbers_of_a_column_are_those_of_python(texts: list[str], name: str) -> None:
    """JSON has neither 007 nor .5, and its 5 is an int."""
    found, expected = list[float](), list[float]()
    with contextlib.suppress(ValueError):  # 1.2.3
        found = _values(name, [text.encode() for text in texts])[1]
    with contextlib.suppress(ValueError):
        expected = [*map(float, texts)]
    kind = float if name == "loss" else int
    assert found == ([*map(kind, expected)] if sum(expected) < 1e15 else [])
    assert {*map(type, found)} <= {kind}


def test_each_usual_line_is_read_with_many_others() -> None:
    unused = dict.fromkeys(metrics._forms())
    for name, line in USUAL.items():
        log = b"".join(map(line, range(2, 800))).replace(b"\r", b"\n")
        for form in metrics._forms():
            if form.steps(log, metrics.marks() or ()):
                unused.pop(form, None)
        found = Follower().feed_many(log)
        assert [type(one) for one in found] == [Steps] * len(found), name
        lines = [record for line in log.splitlines() for record in parse_line(line)]
        assert [step for steps in found for step in steps] == lines, name
        assert added(found) == added(lines), name
    assert not unused


def test_curves_of_columns_are_those_of_steps() -> None:
    """With means of neighbours, progress bars that draw a step twice, steps that the program skips, and restarts."""
    steps = [*range(1, 5000), *range(700, 9000, 3), *(at for at in range(8000, 30_000) for _ in range(at % 4))]
    columns = {"step": steps, "loss": [9 / at for at in steps], "grad_norm": [at % 7 for at in steps]}
    alone = Curves()
    for at, loss, norm in zip(*columns.values(), strict=True):
        alone.add(Steps.of(Step(at, loss, grad_norm=norm)))
    for size in (1000, 777):
        together = Curves()
        for begin in range(0, len(steps), size):
            part = {name: values[begin : begin + size] for name, values in columns.items()}
            together.add(Steps(part, len(part["step"])))
        assert together == alone


@pytest.mark.parametrize(
    "line",
    [
        b"st\x1b[1mep: 5  loss: 3  " + titan(7),
        usual(7).replace(b"11.2500", b"9" * 16 + b".5"),
        usual(7).replace(b"11.2500", b"1e400"),
        nxdt(7).replace(b"6.930", b"1e16"),
    ],
)
def test_what_only_looks_like_a_usual_line(line: bytes) -> None:
    assert Follower().feed(line * 2) == [*parse_line(line[:-1]), *parse_line(line[:-1])]


def test_a_line_beyond_what_is_read() -> None:
    for before in (metrics.LONGEST_LINE - 60, metrics.LONGEST_LINE):
        line = b"x" * before + usual(7)
        assert Follower().feed(line + usual(8)) == [*parse_line(line), *parse_line(usual(8))]


def test_only_the_lines_near_an_odd_one_are_read_alone() -> None:
    log = b"".join(map(usual, range(500))) + usual(500, math.nan) + b"".join(map(usual, range(501, 1500)))
    found = Follower().feed_many(log)
    alone = [record for record in found if isinstance(record, Step)]
    assert 1 <= len(alone) < 50
    assert sum(len(record) for record in found if isinstance(record, Steps)) == 1500 - len(alone)


@pytest.fixture
def also_read(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Reader], None]]:
    """Adds a reader, as of a kind of another package."""
    known, cached = metrics.readers(), (metrics.marks, metrics._marked, metrics._forms)

    def add(reader: Reader) -> None:
        monkeypatch.setattr(metrics, "readers", lambda: (*known, reader))
        for function in cached:
            function.cache_clear()

    yield add
    for function in cached:
        function.cache_clear()


def test_lines_that_another_reader_reads_too_are_read_alone(also_read: Callable[[Reader], None]) -> None:
    also_read(reads(" step_loss : ")(lambda _: iter([(0, Step(1, 1.0))])))
    assert len(Follower().feed_many(usual(7) * 3)) == 6


@pytest.mark.parametrize(("marked", "looked_at"), [(True, 1), (False, 1001)])
def test_only_lines_with_a_mark_are_looked_at(
    marked: bool, looked_at: int, also_read: Callable[[Reader], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kind of another package whose reader has no marks reads every line."""
    if not marked:
        also_read(lambda _: iter(()))
    seen: list[bytes] = []
    monkeypatch.setattr(metrics, "_parse", lambda line: (seen.append(line) or [], None))
    Follower().feed(
        b"INFO ||NEURON_CC_WRAPPER||: Using a cached neff\n" * 1000 + NEMO.replace("7.560", "nan").encode() + b"\n"
    )
    assert len([line for line in seen if line]) == looked_at


@given(st.data())
def test_chunk_boundaries_of_a_log_do_not_matter(data: st.DataObject) -> None:
    log = f"begin\r{NEMO}\r{NXDT}\r\n{BERT}\n\xff{MEGATRON}\n{BERT.replace('14', '15')}".encode("latin-1")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(log)), max_size=8)))
    whole, cut = Follower(), Follower()
    expected = [*whole.feed(log), *whole.close()]
    found: list[Record] = []
    for begin, end in zip([0, *cuts], [*cuts, len(log)], strict=True):
        found += cut.feed(log[begin:end])
    assert [*found, *cut.close()] == expected
    assert len(expected) == 5


@pytest.mark.parametrize("size", [300_000, 5_000_000])
def test_of_a_line_without_an_end_only_the_begin_is_kept(size: int) -> None:
    follower, line = Follower(), BERT.encode().ljust(size) + BERT.encode()
    for begin in range(0, len(line), 70_000):
        assert follower.feed(line[begin : begin + 70_000]) == []
    assert len(follower._rest) == metrics.LONGEST_LINE
    assert follower.feed(b"\n" + BERT.encode() + b"\n") == [*parse_line(line), *parse_line(BERT)]
    assert len(parse_line(line)) == 1


HOSTILE = ["1", "1.", "| 1/1 [", "a", "-", " ", "iteration 1/1 |", "iteration ", "lm loss: ", "|", "[", "LOG ", "e1"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize("begin", ["", BERT.partition("11.25")[0], "iteration 1/1 |", "| 1/1 [", "| 1/1 [loss="])
@pytest.mark.parametrize("piece", HOSTILE)
def test_no_line_takes_long(begin: str, piece: str) -> None:
    """A regular expression that looks twice at each digit would take hours for one of these."""
    list(parse_line(begin + piece * 300_000))


def test_a_summary_excludes_the_warm_up() -> None:
    summary = Summary(warmup=2)
    for step, speed in enumerate([1.0, 1.0, 100.0, 110.0]):
        summary.add(Step(step, 10.0 - step, None, speed))
    assert summary.throughput == 105
    assert (summary.first_loss, summary.last and summary.last.loss, summary.steps) == (10.0, 7.0, 4)


def test_a_summary_counts_the_graphs_of_all_nodes() -> None:
    summary = Summary()
    for record in [CompileCount("graphs", 6), CompileCount("graphs", 6), CompileCount("failed", 1), CompileError(-9)]:
        summary.add(record)
    assert (summary.graphs, summary.failed_graphs, summary.compile_errors) == (12, 1, 1)


@pytest.mark.parametrize("begin", ["0: ", "[rank0]:", "", "3: ", "0: [default7]:"])
def test_of_several_that_print_the_same_steps_the_first_is_taken(begin: str) -> None:
    log = "".join(
        f"{by}step {at} loss {at + 1}.{number}\n"
        for at in range(3)
        for number, by in enumerate([begin, "1: ", "[rank1]:"])
    )
    found = Follower().feed(log.encode())
    assert found == [Step(at, at + 1.0) for at in range(3)]


def test_the_epochs_of_a_bar_are_one_course() -> None:
    log = "".join(f"\r{BAR.format(epoch).replace('3/4', f'{at}/4')}" for epoch in range(3) for at in (1, 2, 3, 4))
    validation = f"\r{BAR.format(0).replace('Epoch', 'Validation DataLoader')}"
    curves = added(Follower().feed_many((log + validation + "\n").encode()))
    assert [at for at, _ in curves["loss"].all()] == [*range(1, 13)]


def test_a_validation_does_not_change_the_curve() -> None:
    log = "step: 10  loss: 2.1\nstep: 20  loss: 1.9\nval step: 20  loss: 5.1\nstep: 30  loss: 1.8\n[eval] step: 30  loss: 5.0\n"
    found = Follower()
    assert found.feed(log.encode()) == [Step(10, 2.1), Step(20, 1.9), Step(30, 1.8)]
    assert found.summary.last == Step(30, 1.8)


@pytest.mark.parametrize("nodes", [1, 2, 16])
def test_steps_that_every_node_prints_are_counted_once(nodes: int) -> None:
    lines = [TRAINER.replace("2.3051", f"{3 - n / 100:.4f}") for n in range(200)]
    log = "".join(f"{node:0{len(str(nodes - 1))}}: {line}\n" for line in lines for node in range(nodes))
    found = Follower()
    found.feed_many(log.encode())
    assert (found.summary.steps, found.summary.first_loss, found.summary.last and found.summary.last.loss) == (
        200,
        3,
        1.01,
    )
