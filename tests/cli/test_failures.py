"""What is printed of an error: few lines, the last of them the one that matters."""

from penstock.cli.displays import MOST_LINES, explain
from penstock.errors import FlowError, OperatorError, PenstockError


def raised(function):
    try:
        function()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


class TestExplain:
    def test_an_operator_error_ends_with_its_line(self):
        trace = '  File "/home/me/flow.py", line 3, in f\n    return 1 / n\n'
        error = OperatorError("inv", "ZeroDivisionError: division by zero", "/home/me/flow.py:3", "0", trace)
        assert explain(error) == [
            "Where it happened (most recent call last):",
            '  File "/home/me/flow.py", line 3, in f',
            "    return 1 / n",
            "OperatorError: operator 'inv' failed at /home/me/flow.py:3: ZeroDivisionError: division by zero; row: 0",
        ]

    def test_a_long_trace_and_a_message_of_many_lines_stay_short(self):
        error = OperatorError("op", "ValueError: one\ntwo\n  three", "f.py:1", "0", "  File x\n" * 100)
        lines = explain(error)
        assert len(lines) == MOST_LINES
        assert lines[-1] == "OperatorError: operator 'op' failed at f.py:1: ValueError: one two three; row: 0"

    def test_an_error_of_penstock_keeps_its_lines(self):
        assert explain(PenstockError("no Java\n  do this")) == ["PenstockError: no Java", "  do this"]

    def test_an_error_while_composing_names_the_line(self):
        def compose():
            raise FlowError("two operators named 'x'")

        lines = explain(raised(compose))
        assert f'File "{__file__}"' in "\n".join(lines)
        assert lines[-1] == "FlowError: two operators named 'x'"

    def test_a_syntax_error_shows_the_place(self):
        lines = explain(raised(lambda: compile("x = (", "flow.py", "exec")))
        assert 'File "flow.py", line 1' in lines[0]
        assert lines[-1].startswith("SyntaxError")
