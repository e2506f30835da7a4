"""Which flow a file defines, and under which name it is loaded."""

import pickle
import sys
from pathlib import Path

import pytest

from penstock.cli import UsageError
from penstock.cli.loading import load_flow, load_module, split_target

from .support import NUMBERS, write


class TestTarget:
    @pytest.mark.parametrize(
        ("target", "file", "name"),
        [
            ("a.py", "a.py", None),
            ("dir/a.py:flow", "dir/a.py", "flow"),
            ("C:/dir/a.py", "C:/dir/a.py", None),
            ("odd:name/a.py", "odd:name/a.py", None),
            ("a.py:not a name", "a.py:not a name", None),
        ],
    )
    def test_is_split(self, target, file, name):
        assert split_target(target) == (Path(file), name)


class TestModule:
    def test_has_the_name_of_the_file_and_its_classes_can_be_pickled(self, tmp_path):
        file = write(tmp_path, "orders_flow.py", "class Order:\n    pass\n")
        module = load_module(file)
        assert module.__name__ == "orders_flow"
        assert pickle.loads(pickle.dumps(module.Order)) is module.Order

    def test_sees_the_modules_beside_it(self, tmp_path):
        write(tmp_path, "beside_it.py", "VALUE = 7\n")
        assert load_module(write(tmp_path, "looks_beside.py", "from beside_it import VALUE\n")).VALUE == 7

    def test_is_not_the_main_program(self, tmp_path):
        load_module(write(tmp_path, "guarded.py", 'if __name__ == "__main__":\n    raise SystemExit("ran")\n'))

    def test_with_a_hyphen_in_its_name(self, tmp_path):
        assert load_flow(str(write(tmp_path, "my-numbers.py", NUMBERS))).name == "numbers"

    def test_loaded_twice_is_the_newer_one(self, tmp_path):
        file = write(tmp_path, "changes.py", "VALUE = 1\n")
        load_module(file)
        assert load_module(write(tmp_path, "changes.py", "VALUE = 22\n")).VALUE == 22

    @pytest.mark.parametrize("name", ["json.py", "penstock.py", "turtle.py"])
    def test_that_would_hide_another_is_refused(self, tmp_path, name):
        with pytest.raises(UsageError, match=f"has the name of the module '{name[:-3]}'.*rename"):
            load_module(write(tmp_path, name, ""))

    def test_with_a_dot_in_its_name_is_refused(self, tmp_path):
        with pytest.raises(UsageError, match="rename it without the inner dot"):
            load_module(write(tmp_path, "a.b.py", ""))

    def test_that_is_not_there(self, tmp_path):
        with pytest.raises(UsageError, match="there is no file"):
            load_module(tmp_path / "none.py")

    def test_that_is_no_python(self, tmp_path):
        with pytest.raises(UsageError, match=r"no Python file; give FILE\.py"):
            load_module(tmp_path / "flow.txt")

    def test_that_fails_is_forgotten(self, tmp_path):
        with pytest.raises(ZeroDivisionError):
            load_module(write(tmp_path, "broken_file.py", "1 / 0\n"))
        assert "broken_file" not in sys.modules


class TestFlow:
    def load(self, tmp_path, text, name=""):
        return load_flow(f"{write(tmp_path, 'some_flow.py', 'import penstock as ps' + text)}{name}")

    def test_is_the_variable(self, tmp_path):
        assert self.load(tmp_path, "\nmine = ps.Flow('one')").name == "one"

    def test_may_have_two_names(self, tmp_path):
        assert self.load(tmp_path, "\nmine = ps.Flow('one')\nagain = mine").name == "one"

    def test_is_what_a_function_returns_that_says_so(self, tmp_path):
        assert self.load(tmp_path, "\ndef make(n=1) -> ps.Flow:\n    return ps.Flow(f'made {n}')").name == "made 1"

    def test_is_found_by_an_annotation_that_is_text(self, tmp_path):
        assert self.load(tmp_path, "\ndef make() -> 'ps.Flow':\n    return ps.Flow('made')").name == "made"

    def test_of_a_variable_comes_before_the_function_that_made_it(self, tmp_path):
        text = "\ndef make(name='x') -> ps.Flow:\n    return ps.Flow(name)\nflow = make('kept')"
        assert self.load(tmp_path, text).name == "kept"

    def test_is_named_among_several(self, tmp_path):
        text = "\na = ps.Flow('one')\nb = ps.Flow('two')"
        assert self.load(tmp_path, text, ":b").name == "two"
        with pytest.raises(UsageError, match=r"several flows; name one of them:\n.*some_flow\.py:a\n.*some_flow\.py:b"):
            self.load(tmp_path, text)

    def test_may_be_made_by_a_function_that_is_named(self, tmp_path):
        assert self.load(tmp_path, "\ndef plain():\n    return ps.Flow('made')", ":plain").name == "made"

    def test_that_is_missing(self, tmp_path):
        with pytest.raises(UsageError, match=r"defines no flow; assign a penstock\.Flow to a variable"):
            self.load(tmp_path, "")
        with pytest.raises(UsageError, match="has no 'other'"):
            self.load(tmp_path, "", ":other")

    def test_that_is_something_else(self, tmp_path):
        with pytest.raises(UsageError, match=r"'x' of .* is a int, not a penstock\.Flow"):
            self.load(tmp_path, "\nx = 3", ":x")
        with pytest.raises(UsageError, match=r"returns a Stream.*end it with \.sink"):
            self.load(tmp_path, "\ndef f():\n    return ps.Flow('x').source('in', [1])", ":f")
