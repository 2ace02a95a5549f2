# make demo  the whole path: simulate, calibrate, judge     make test   the tests
# make env   only the environment in .venv                  make lint   ruff and mypy, which make test runs first
# make bench  the benchmarks                                make docs   the pages as a site, in build/site
# make test FAST=1  in about a minute what neither starts processes nor calibrates whole recordings
# make test-long  further seeds, and whole runs of what `make test` has in parts
# make test-launch  the launch tests, with ROS 2 sourced or LAUNCH_SRC=a checkout of github.com/ros2/launch
# make test-wheel  the wheel in plain environments of every Python that is there, WHEEL_PYTHONS="3.11 3.12 3.13"
# make clean removes everything that was made               PYTHON=python3.12 chooses the interpreter

PYTHON ?=
TESTS ?= test
BIN := .venv/bin

export PYTHONUNBUFFERED := 1
# Or every process that is started compiles all modules anew.
unexport PYTHONDONTWRITEBYTECODE

# Those that need no argument; benchmarks/effects.py takes one and a half hours more, real_data.py needs --data.
BENCHMARKS := alignment floor mounts body_shape sensor costs information watch

# What starts processes or calibrates in every test: FAST=1 leaves it out, and what is marked slow elsewhere.
SLOW := campaign commands harness launch packaging ros test_api.py test_benchmarks.py

# Tests of ROS's launch_testing, each run by its own runner; Gazebo's only where it is installed.
LAUNCH_SRC ?=
LAUNCH_TESTS := furnished_room long_corridor $(if $(shell command -v gz),gazebo)
LAUNCH_PATH := $(if $(LAUNCH_SRC),$(LAUNCH_SRC)/launch:$(LAUNCH_SRC)/launch_testing:)$(PYTHONPATH)

.PHONY: env demo test test-long test-launch test-wheel lint docs bench clean

env:
	@python=$$(command -v python3 || command -v "$(PYTHON)") || \
		{ echo "error: there is no Python: apt-get install python3 python3-venv python3-dev" >&2; exit 1; }; \
	"$$python" environment/make_env.py --python "$(PYTHON)"

demo: env
	@$(BIN)/stretch-sim-cal demo $(ARGS)

# What is freed is kept: returned to the system, it would be zeroed anew for every large array, a tenth of the time.
test: export MALLOC_TRIM_THRESHOLD_ := 1073741824
test: export MALLOC_MMAP_THRESHOLD_ := 1073741824
# All tests are run behind the linter, a folder of them, or FAST=1, without it.
test: env $(if $(FAST),,$(if $(filter test,$(TESTS)),lint))
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder -m "not long$(if $(FAST), and not slow)" \
		$(if $(FAST),$(SLOW:%=--ignore=test/%)) $(TESTS) $(ARGS)

test-long: env
	@$(BIN)/python -m pytest -n 2 --dist loadfile -m long $(TESTS) $(ARGS)

test-launch: env
	@$(if $(LAUNCH_SRC),$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .[launch])
	@PYTHONPATH="$(LAUNCH_PATH)" $(BIN)/python -c "import launch.launch_description, launch_testing" || \
		{ echo "error: ROS's launch is not there: source ROS 2, or give LAUNCH_SRC=, a checkout of github.com/ros2/launch" >&2; exit 2; }
	@PYTHONPATH="$(LAUNCH_PATH)" $(BIN)/python -m pytest test/launch/test_launch_arguments.py
	@for name in $(LAUNCH_TESTS); do \
		PYTHONPATH="$(LAUNCH_PATH)" $(BIN)/python -m launch_testing.launch_test "test/launch/test_launch_$$name.py" || exit 1; done

test-wheel: export WHEEL_PYTHONS ?= 3.11 3.12 3.13
test-wheel: env
	@$(BIN)/python -m pytest test/packaging/test_ci_page.py -k plain_environment

lint: env
	@$(BIN)/ruff check . && $(BIN)/ruff format --check --quiet . && $(BIN)/mypy

docs: env
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e .[docs]
	@$(BIN)/mkdocs build --quiet --strict && echo "build/site/index.html"

bench: env
	@for benchmark in $(BENCHMARKS); do echo "== $$benchmark"; $(BIN)/python "benchmarks/$$benchmark.py" || exit 1; done

clean:
	rm -rf .venv build install log out .*_cache *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
