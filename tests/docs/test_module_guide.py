"""The guide to modules works as it is printed."""

import re
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs/guides/write-a-module.md"


def test_the_code_of_the_guide_runs(capsys):
    code = "\n".join(re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL))
    names = {}
    exec(compile(code, str(GUIDE), "exec"), names)
    first, second = capsys.readouterr().out.splitlines()
    assert first == "{'subscriptions': 7}"
    assert "'brokers': 7" in second
    assert "all brokers have answered" in second
    assert len(names["network"].decisions) == 7
