"""What the tables of scripts say of the machine, and how they say a figure that was measured several times."""
import os
import re
import statistics
from pathlib import Path


def spread(values, form="{:,.0f}"):
    """Median and range."""
    middle, low, high = (form.format(f(values)) for f in (statistics.median, min, max))
    return f"{middle} ({low} to {high})"


def cpu_facts():
    """Of the first processor in /proc/cpuinfo; empty where there is none."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return {}
    return dict(re.findall(r"^(vendor_id|model name|cpu family|model|flags)\s*:\s*(.*)$", text, re.MULTILINE))


def machine():
    """The processor as it calls itself, with family and model, which its name may leave out."""
    facts = cpu_facts()
    if "model name" not in facts:
        return f"{os.uname().machine}, {os.cpu_count()} processors"
    virtual = ", in a virtual machine" if "hypervisor" in facts.get("flags", "").split() else ""
    return (f"{facts['model name']} (family {facts.get('cpu family', '?')}, model {facts.get('model', '?')}), "
            f"{os.cpu_count()} processors{virtual}")
