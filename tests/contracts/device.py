"""The contract of devices: subclass with the fixtures `device`, `source`, `broken_source`."""

from __future__ import annotations

import numpy as np
import pytest
from kernelscape.runtime.api.artifact import Artifact
from kernelscape.runtime.api.backend import CallArguments
from kernelscape.runtime.api.outcome import Failure, Measurement, Protocol
from kernelscape.runtime.building.queue import build_many
from kernelscape.space.targets.target import Target

QUICK = Protocol(sample_ns=2e4, min_samples=3, max_samples=5, budget_ns=5e6)


class DeviceContract:
    @pytest.fixture
    def module(self, device, source):
        module = device.runner.load(device.builder.build(source))
        assert not isinstance(module, Failure)
        yield module
        module.close()

    @pytest.fixture
    def arrays(self, device, source):
        return [
            device.runner.allocate(a.shape, np.dtype(a.dtype))
            for a in source.arguments
            if a.kind == "array"
        ]

    def values(self, source, arrays):
        scalars = [0.5 for a in source.arguments if a.kind == "scalar"]
        return (*arrays, *scalars)

    def test_facts_are_usable(self, device):
        facts = device.machine.facts()
        assert isinstance(facts, Target)
        assert facts.cores >= 1
        assert facts.vector_bytes >= 4
        assert facts.memory_mixed_bytes_per_ns >= facts.memory_read_bytes_per_ns > 0
        assert min(facts.f32_flops_per_ns, facts.launch_ns, facts.call_ns) > 0
        assert [level.name for level in facts.levels] == sorted(x.name for x in facts.levels)

    def test_equal_sources_give_equal_artifacts(self, device, source):
        first, second = device.builder.build(source), device.builder.build(source)
        assert isinstance(first, Artifact)
        assert isinstance(second, Artifact)
        assert first.key == second.key
        assert second.build_ns == 0
        assert first.source_key == source.key

    def test_refused_source_is_a_failure_with_advice(self, device, broken_source):
        failure = device.builder.build(broken_source)
        assert isinstance(failure, Failure)
        assert failure.kind == "compile"
        assert failure.advice

    def test_many_builds_keep_their_order(self, device, source, broken_source):
        built = build_many(device.builder, [source, broken_source, source], jobs=2)
        assert [isinstance(b, Artifact) for b in built] == [True, False, True]

    @pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
    @pytest.mark.parametrize("shape", [(), (1,), (7, 3), (0,), (1 << 21,)])
    def test_arrays_hold_what_they_are_given(self, device, shape, dtype):
        array = device.runner.allocate(shape, np.dtype(dtype))
        assert (array.shape, array.dtype) == (shape, np.dtype(dtype))
        contents = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
        array.upload(contents)
        array.freeze()
        assert np.array_equal(array.download(), contents)
        assert array.trespass() is None
        array.poison()
        assert array.download().size == 0 or not np.array_equal(array.download(), contents)

    def test_times_are_positive(self, device, source, module, arrays):
        values = self.values(source, arrays)
        for a in arrays:
            a.upload(np.zeros(a.shape, a.dtype))
        module.run(values)
        [measured] = device.runner.time([(module, CallArguments(values))], QUICK)
        assert isinstance(measured, Measurement)
        assert 0 < measured.min_ns <= measured.time_ns

    def test_several_are_timed_in_order(self, device, source, module, arrays):
        call = (module, CallArguments(self.values(source, arrays)))
        assert len(device.runner.time([call, call, call], QUICK)) == 3

    def test_wrong_number_of_arguments_is_refused(self, module, arrays):
        with pytest.raises(TypeError, match="arguments are needed"):
            module.run(arrays[:1])
