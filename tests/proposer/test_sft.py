"""Fine-tuning by the real TRL and PEFT, on a tiny model with random weights and the embedded model's tokenizer."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import killed_sft
import pytest
from demo_set import demos
from hypothesis import given
from hypothesis import strategies as st
from tiny_model import tiny_model
from typer.testing import CliRunner

from reharness.envs.config import load_config
from reharness.envs.errors import ConfigError, LedgerError, UnknownNameError
from reharness.proposer import sft
from reharness.proposer.base_model import find_base
from reharness.proposer.rows import write_rows
from reharness.proposer.sft import SftConfig, run_sft
from reharness.proposer.sft_data import IGNORED, encode, end_of_turn, padded_tokens, training_order
from reharness.proposer.sft_memory import memory_estimate
from reharness.proposer.sft_plan import make_plan
from reharness.recipes.cli import app
from reharness.solver.models.base import Sampling
from reharness.solver.models.chat import ChatTokenizer
from reharness.solver.models.hf import TransformersEngine

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sft")
    tiny_model(folder / "model")
    write_rows(folder / "demos.jsonl", demos(11))
    return folder


def settings(room: Path, **changes: object) -> SftConfig:
    """Dropout on, so that random numbers matter; epochs that end within a step and a short last batch."""
    fields = {
        "demos": room / "demos.jsonl", "model": str(room / "model"), "lr": 3e-2, "epochs": 2.7, "batch": 2,
        "accumulation": 2, "window": 256, "save_every": 3, "keep_last": 1, "threads": 1, "warmup": 0.1, "seed": 7,
        "lora": {"r": 4, "alpha": 64, "dropout": 0.1}, "device": "cpu",
    }  # fmt: skip
    return SftConfig.model_validate({k: v for k, v in {**fields, **changes}.items() if v is not None})


@pytest.fixture(scope="module")
def done(room: Path) -> tuple[Path, dict]:
    return room / "run", run_sft(settings(room), room / "run")


def metrics(out: Path) -> list[dict]:
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]


def untimed(out: Path) -> list[dict]:
    return [{k: v for k, v in row.items() if k not in ("seconds", "tokens_per_second")} for row in metrics(out)]


def files(folder: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in sorted(folder.iterdir())}


def test_the_loss_falls_and_the_folder_says_what_was_done(room: Path, done: tuple[Path, dict]) -> None:
    out, summary = done
    rows = metrics(out)
    assert [row["step"] for row in rows] == list(range(1, 9)) and summary["steps"] == 8  # 30 rows, 4 a step
    assert rows[-1]["loss"] == summary["loss_last"] < summary["loss_first"] - 0.1 == rows[0]["loss"] - 0.1
    assert set(rows[0]) == {"step", "epoch", "loss", "lr", "grad_norm", "mean_token_accuracy", "tokens", "tokens_per_second", "seconds"}
    assert rows[-1]["tokens"] == summary["tokens"] and rows[-1]["epoch"] == pytest.approx(30 / 11)
    assert rows[0]["lr"] == 0 and rows[1]["lr"] == pytest.approx(3e-2) and rows[-1]["lr"] < 3e-3  # warm-up, cosine
    assert summary["rows"] == 11 and summary["rows_per_track"] == {"F": 4, "R": 3, "S": 4}
    assert summary == json.loads((out / "summary.json").read_text())
    assert json.loads((out / "config.json").read_text())["hash"] == settings(room).digest()
    assert [p.name for p in sorted((out / "checkpoints").iterdir())] == [".part", "step-000008"]


def test_the_adapter_names_its_base_and_no_path_of_this_machine(room: Path, done: tuple[Path, dict]) -> None:
    out, _ = done
    assert sorted(files(out / "adapter")) == ["adapter_config.json", "adapter_model.safetensors", "reharness.json"]
    note = json.loads((out / "adapter" / "reharness.json").read_text())
    assert note["base"] == {"name": "model", "weights": find_base(str(room / "model"), False).weights}
    assert note["steps"] == 8 and note["dtype"] == "bfloat16" and note["versions"]["trl"]
    assert not any(str(room).encode() in text for text in files(out / "adapter").values())


def test_a_finished_folder_gives_its_summary_at_once(
    room: Path, done: tuple[Path, dict], monkeypatch: pytest.MonkeyPatch
) -> None:
    out, summary = done
    monkeypatch.setattr(sft, "train", lambda *_: pytest.fail("trained again"))
    assert run_sft(settings(room), out) == summary
    assert run_sft(settings(room, keep_last=5, save_every=1), out) == summary  # what changes no result is free


def test_killed_at_any_moment_it_ends_with_the_same_adapter(room: Path, done: tuple[Path, dict]) -> None:
    out, _ = done
    (room / "config.json").write_text(settings(room).model_dump_json(exclude_unset=True))
    program = [sys.executable, str(Path(killed_sft.__file__)), str(room / "config.json"), str(room / "killed")]
    ran = subprocess.run(program, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, ran.stderr[-3000:]
    assert json.loads(ran.stdout.splitlines()[-1]) == [-9] * 8 + [0], ran.stderr[-3000:]
    assert files(room / "killed" / "adapter") == files(out / "adapter")
    assert untimed(room / "killed") == untimed(out)
    timed = {"seconds", "tokens_per_second"}
    ours, theirs = (json.loads((o / "summary.json").read_text()) for o in (room / "killed", out))
    assert {k: v for k, v in ours.items() if k not in timed} == {k: v for k, v in theirs.items() if k not in timed}


def test_another_seed_gives_another_adapter(room: Path, done: tuple[Path, dict]) -> None:
    summary = run_sft(settings(room, seed=8, max_steps=1, epochs=None, save_dtype="float32"), room / "seed")
    assert summary["weights"] != done[1]["weights"] and summary["steps"] == 1


@pytest.mark.parametrize("change", [{"lr": 1e-3}, {"threads": 2}, {"lora": {"r": 2}}])
def test_another_configuration_is_refused(room: Path, done: tuple[Path, dict], change: dict) -> None:
    with pytest.raises(LedgerError, match=f"another config: {next(iter(change))} was .*, is .*new run folder"):
        run_sft(settings(room, **change), done[0])


def test_other_data_and_another_base_are_refused(room: Path, done: tuple[Path, dict], tmp_path: Path) -> None:
    write_rows(tmp_path / "other.jsonl", demos(10))
    with pytest.raises(LedgerError, match=r"another inputs: demonstrations was '.*', is '"):
        run_sft(settings(room, demos=tmp_path / "other.jsonl"), done[0])
    tiny_model(tmp_path / "model", seed=1)
    with pytest.raises(LedgerError, match=r"another inputs: base was '.*', is '"):
        run_sft(settings(room, model=str(tmp_path / "model")), done[0])
    with pytest.raises(ConfigError, match=r"was made for the base weights .* give the model that it was made for"):
        run_sft(settings(room, model=str(tmp_path / "model"), adapter=done[0] / "adapter", lora=None), tmp_path / "x")


def test_an_adapter_that_was_swapped_is_noticed(room: Path, done: tuple[Path, dict]) -> None:
    weights = done[0] / "adapter" / "adapter_model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    try:
        with pytest.raises(LedgerError, match=r"adapter/ is not the one that summary.json tells of"):
            run_sft(settings(room), done[0])
    finally:
        weights.write_bytes(content)


def test_training_goes_on_from_an_adapter(room: Path, done: tuple[Path, dict], tmp_path: Path) -> None:
    out, before = done
    more = settings(room, adapter=out / "adapter", lora=None, max_steps=2, epochs=None, lr=1e-3)
    summary = run_sft(more, tmp_path / "more")
    assert summary["loss_first"] < before["loss_first"] - 0.1 and summary["weights"] != before["weights"]
    with pytest.raises(ConfigError, match="leave out `lora`"):
        load_config(SftConfig, None, ["lora.r=2"], demos="x", adapter=str(out / "adapter"), epochs=1)


def test_an_engine_answers_differently_with_the_adapter(room: Path, done: tuple[Path, dict]) -> None:
    out, summary = done
    folder = room / "model"
    engines = [TransformersEngine(folder, adapter=a, device="cpu", threads=1) for a in (None, out / "adapter")]

    async def both() -> list[str]:
        messages = [{"role": "user", "content": "Say something."}]
        try:
            answers = await asyncio.gather(*(e.generate(messages, Sampling(max_tokens=12)) for e in engines))
            assert [a.weights for a in answers] == [find_base(str(folder), False).weights, summary["weights"]]
            return [a.text for a in answers]
        finally:
            await asyncio.gather(*(e.aclose() for e in engines))

    without, with_adapter = asyncio.run(both())
    assert without != with_adapter


# What is trained on


def test_labels_are_the_completion_and_the_end_of_the_turn(room: Path) -> None:
    chat = ChatTokenizer(room / "model")
    for row, encoded in zip(demos(6), encode(demos(6), chat, 256), strict=True):
        assert encoded.input_ids[: len(encoded.prompt)] == chat.encode(chat.render([m.model_dump() for m in row.messages]))
        trained = [label for label in encoded.labels if label != IGNORED]
        assert trained == encoded.input_ids[len(encoded.prompt) :]
        assert chat.decode(trained) == row.completion and trained[-1] in chat.eos_ids


def test_the_tokens_are_those_that_trl_makes_of_conversations(room: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(room / "model")
    for row, encoded in zip(demos(4), encode(demos(4), ChatTokenizer(room / "model"), 256), strict=True):
        messages = [m.model_dump() for m in row.messages] + [{"role": "assistant", "content": row.completion}]
        whole = tokenizer.apply_chat_template(messages, return_dict=True)["input_ids"]
        assert whole == encoded.input_ids + tokenizer.encode("\n")  # a line end that no one asks a model to write


def test_a_template_that_does_not_end_a_turn_is_refused(room: Path, tmp_path: Path) -> None:
    folder = tiny_model(tmp_path / "m")
    assert end_of_turn(ChatTokenizer(folder)) == 2
    (folder / "chat_template.jinja").write_text("{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    with pytest.raises(ConfigError, match="does not end the assistant's turn with a token that ends a completion"):
        make_plan(settings(room, model=str(folder)))


def test_the_loss_is_the_model_s_own_on_the_labels(room: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    from reharness.proposer.sft_trainer import completion_loss

    model = AutoModelForCausalLM.from_pretrained(room / "model", dtype=torch.float32)
    rows = encode(demos(3), ChatTokenizer(room / "model"), 256)
    longest = max(map(len, rows))
    ids, labels = (
        torch.tensor([x + [fill] * (longest - len(x)) for x in values])
        for values, fill in (([r.input_ids for r in rows], 0), ([r.labels for r in rows], IGNORED))
    )
    mask = torch.tensor([[1] * len(r) + [0] * (longest - len(r)) for r in rows])
    loss, right = completion_loss(model, {"input_ids": ids, "attention_mask": mask, "labels": labels})
    whole = model(input_ids=ids, attention_mask=mask, labels=labels)
    assert loss.item() == pytest.approx(whole.loss.item(), rel=1e-5)
    shifted = labels[:, 1:] != IGNORED
    hits = whole.logits[:, :-1].argmax(-1)[shifted] == labels[:, 1:][shifted]
    assert right == pytest.approx(hits.float().mean().item())
    assert completion_loss(model, {"input_ids": ids, "attention_mask": mask, "labels": labels}, 7)[0].item() == (
        pytest.approx(loss.item() * shifted.sum().item() / 7, rel=1e-5)
    )


@given(st.lists(st.integers(1, 900), min_size=1, max_size=40), st.integers(1, 150), st.integers(1, 5), st.integers(1, 4), st.integers(0, 9))
def test_the_order_holds_every_row_once_an_epoch(lengths: list[int], total: int, batch: int, accumulation: int, seed: int) -> None:
    order = training_order(lengths, total, batch, accumulation, seed)
    assert order == training_order(lengths, total, batch, accumulation, seed) and len(order) == total
    epochs, rest = divmod(total, len(lengths))
    times = Counter(order)
    assert sorted(times[i] - epochs for i in range(len(lengths))) == [0] * (len(lengths) - rest) + [1] * rest
    assert sum(lengths[i] for i in order) <= padded_tokens(lengths, order, batch)


def test_batches_hold_rows_of_like_length() -> None:
    lengths = [100 + 37 * i % 700 for i in range(64)]
    order = training_order(lengths, 128, 2, 4, 0)
    tokens = sum(lengths[i] for i in order)
    shuffled = [i for epoch in range(2) for i in killed_order(epoch)]
    assert padded_tokens(lengths, order, 2) < 1.05 * tokens < padded_tokens(lengths, shuffled, 2) / 1.1
    assert order[:64] != order[64:] and order != training_order(lengths, 128, 2, 4, 1)


def killed_order(epoch: int) -> list[int]:
    return [(i * 29 + epoch) % 64 for i in range(64)]


# What is refused before any weights are loaded


def test_bad_input_is_named(room: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"demonstration [0-9a-f]{12} \(chain_sum.exact=true\) has \d+ tokens \(\d+ of them prompt\), over the window of 40"):
        make_plan(settings(room, window=40))
    with pytest.raises(ConfigError, match=r"window = 2000: .* holds 1024 tokens; lower `window`"):
        make_plan(settings(room, window=2000))
    with pytest.raises(ConfigError, match=r"model = './nowhere': is no folder here, nor a hub name"):
        make_plan(settings(room, model="./nowhere"))
    with pytest.raises(ConfigError, match=r"holds no config.json; give the folder of a transformers model"):
        make_plan(settings(room, model=str(tmp_path)))
    with pytest.raises(ConfigError, match=r"holds no adapter_config.json"):
        make_plan(settings(room, adapter=tmp_path, lora=None))
    with pytest.raises(ConfigError, match=r"absent.jsonl: cannot be read"):
        make_plan(settings(room, demos=tmp_path / "absent.jsonl"))
    with pytest.raises(ConfigError, match="is there 2 times"):
        make_plan(settings(room, demos=(room / "demos.jsonl", room / "demos.jsonl")))
    write_rows(tmp_path / "one.jsonl", demos(1))
    with pytest.raises(ConfigError, match="one-sided"):
        make_plan(settings(room, demos=tmp_path / "one.jsonl"))
    (tmp_path / "none.jsonl").write_text("")
    with pytest.raises(ConfigError, match="there are no demonstrations"):
        make_plan(settings(room, demos=tmp_path / "none.jsonl"))
    for both in ({"epochs": 1, "max_steps": 2}, {}):
        with pytest.raises(ConfigError, match="exactly one of epochs and max_steps"):
            load_config(SftConfig, None, [], demos="d.jsonl", **both)
    with pytest.raises(UnknownNameError, match=r"unknown key 'lora.rank'"):
        load_config(SftConfig, None, ["lora.rank=2"], demos="d.jsonl", epochs=1)


def test_an_epoch_holds_the_rows_of_a_repeated_track_so_often(room: Path) -> None:
    plan = make_plan(settings(room, epochs=2, track_repeats={"R": 3}))
    times = Counter(plan.rows[i].id for i in plan.order)
    assert {row.track: times[row.id] for row in plan.rows} == {"S": 2, "F": 2, "R": 6}
    assert plan.counts()["epochs"] == plan.epochs_after(plan.steps) == 2 and plan.counts()["rows"] == len(plan.rows) == 11
    only_s = [row for row in demos(11) if row.track == "S"]
    write_rows(room / "only_s.jsonl", only_s)
    with pytest.raises(ConfigError, match="no rows of track F"):
        make_plan(settings(room, demos=room / "only_s.jsonl", track_repeats={"F": 2}))
    for wrong in ({"Q": 2}, {"S": 0}):
        with pytest.raises(ConfigError, match="track_repeats"):
            load_config(SftConfig, None, [], demos="d.jsonl", epochs=1, track_repeats=wrong)


def test_a_hub_model_that_cannot_be_fetched_is_named(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    def unreachable(*_: object, **__: object) -> str:
        raise LocalEntryNotFoundError("no network")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", unreachable)
    with pytest.raises(ConfigError, match="model = 'org/absent': could not be fetched from the hub"):
        make_plan(settings(room, model="org/absent"))


def test_no_gpu_is_said_before_training(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(ConfigError, match="device = 'cuda': torch sees no GPU here"):
        run_sft(settings(room, device="cuda"), room / "gpu")


def test_targets_that_name_no_layer(room: Path) -> None:
    with pytest.raises(ConfigError, match=r"the trainer cannot be built: Target modules .*nothing"):
        run_sft(settings(room, lora={"targets": ["nothing"]}), room / "targets")


def test_a_diverged_training_stops_with_its_reason(room: Path) -> None:
    with pytest.raises(ConfigError, match=r"step \d: loss .*the training has diverged; lower `lr`"):
        run_sft(settings(room, lr=1e30, warmup=0, schedule="constant", max_grad_norm=1e30), room / "diverged")


def test_a_folder_in_use_is_refused(room: Path, done: tuple[Path, dict]) -> None:
    from reharness.solver.ledger import Ledger

    ledger = Ledger(done[0] / "ledger.sqlite")
    with pytest.raises(LedgerError, match="another run is using this folder"):
        run_sft(settings(room), done[0])
    ledger.close()


# The command


def run(*args: str) -> str:
    result = CliRunner().invoke(app, ["train", "sft", *args], env={"COLUMNS": "300"}, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def test_the_dry_run_tells_the_plan_and_loads_no_weights(room: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import PreTrainedModel

    monkeypatch.setattr(PreTrainedModel, "from_pretrained", lambda *_, **__: pytest.fail("weights were loaded"))
    text = run("--dry-run", "--set", f"demos={room / 'demos.jsonl'}", "--set", f"model={room / 'model'}", "--set", "epochs=2", "--set", "window=256", "--set", "device=cpu")
    for part in ("11 of 4 families (tracks: 4 F, 3 R, 4 S)", "11 of 2 x 1 rows: 2 epochs", "longest 64", "LlamaForCausalLM, 3.2 M parameters, 0.03 M trained", "GiB per device", "trl 1.16"):
        assert part in text, text
    assert "not resolved" not in text
    text = run("--dry-run", "--config", str(ROOT / "recipes/rg_sft/gpu.toml"), "--set", f"demos={room / 'demos.jsonl'}", "--set", "model=org/absent")
    assert "org/absent, from the hub when training starts" in text and text.count("not resolved") >= 2


def test_the_estimate_counts_what_is_there(room: Path) -> None:
    plan = make_plan(settings(room))
    estimate = memory_estimate(plan)
    assert estimate["parameters"] == 49152 * 64 + 2 * (64 * 64 * 2 + 64 * 32 * 2 + 3 * 64 * 128 + 2 * 64) + 64
    per_layer = 4 * (2 * (64 + 64) + 2 * (64 + 32) + 3 * (64 + 128))
    assert estimate["trained"] == 2 * per_layer and estimate["weights"] == 4 * estimate["parameters"]


@pytest.mark.parametrize("name", ["cpu.toml", "gpu.toml"])
def test_the_recipes_are_valid(name: str) -> None:
    config = load_config(SftConfig, ROOT / "recipes" / "rg_sft" / name)
    assert config.lora.alpha == 32 and config.demos == (Path("recipes/micro_rg/demos.jsonl"),)
    if name == "gpu.toml":
        assert (config.lora.r, config.window) == (32, 32768)  # mission: arXiv 2609.35738


def test_the_command_trains_and_names_the_adapter(room: Path, tmp_path: Path) -> None:
    toml = tmp_path / "c.toml"
    toml.write_text(f'demos = "{room / "demos.jsonl"}"\nmodel = "{room / "model"}"\nmax_steps = 1\nthreads = 1\nwindow = 256\ndevice = "cpu"\n')
    text = run("--config", str(toml), "--out", str(tmp_path / "run"), "--resume")
    assert "1 steps, " in text and str(tmp_path / "run" / "adapter") in text
    assert run("--config", str(toml), "--out", str(tmp_path / "run")) == text
    assert (tmp_path / "run" / "adapter" / "adapter_model.safetensors").stat().st_size > 0
