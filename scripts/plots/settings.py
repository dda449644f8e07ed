"""What rows have in common, for the line below a picture's title."""

from plots.metrics import same
from plots.words import parameter_count, setting_text

# In this order and these words; options that are not here are in the result.
WORDS = {"prefill": "prompt of {} tokens", "budget": "retrieval budget {}", "gamma": "gamma {}",
         "inner_gamma": "inner gamma {}", "chunk_size": "chunks of {}", "temp": "temperature {}"}


def common(rows, name):
    """The value that all rows of this program have, or None."""
    values = [row.setting.get(name) for row in rows if not row.is_foreign]
    if not values or values[0] is None or not all(same(v, values[0]) for v in values):
        return None
    return values[0]


def model_text(rows):
    targets = [row.case["model"]["target"] for row in rows if not row.is_foreign]
    texts = {f"{parameter_count(t['n_params'])} parameters, {t['dtype']}" for t in targets if t}
    return texts.pop() if len(texts) == 1 else None


def machine_text(context):
    return context["gpu_name"] or f"{context['cpu_model']}, {context['threads']} threads"


def subtitle_of(rows, without=()):
    """Model and settings in one line, machine in another; what differs among rows is not there."""
    settings = [words.format(setting_text(common(rows, name))) for name, words in WORDS.items()
                if name not in without and common(rows, name) is not None]
    machines = {machine_text(row.run.context) for row in rows if row.run}
    lines = [", ".join([text for text in [model_text(rows)] if text] + settings),
             machines.pop() if len(machines) == 1 else
             f"{len(machines)} different machines" if machines else ""]
    return [line for line in lines if line]
