"""Structs: values, types, fields, dataclasses."""

from __future__ import annotations

import kernelscape as ks
import numpy as np
import pytest

vec2 = ks.types.vector(2, ks.f32)


def test_values_without_a_type():
    s = ks.Struct(a=1, v=ks.Vector([1, 2]), d={"q": 3})
    s.a += 1
    s["v"] = ks.Vector([5, 6])
    assert (s.a, s["a"], s.d.q, s.v.x, s.keys) == (2, 2, 3, 5, ["a", "v", "d"])
    assert str(s) == "{'a': 2, 'v': [5, 6], 'd': {'q': 3}}" and len(s) == 3
    assert next(iter(s)) == 2 and dict(s.items)["a"] == s.entries["a"] == 2
    assert ks.Struct({"a": 1}).a == 1 and s.kind is None


def test_values_of_a_type_are_converted():
    kind = ks.types.struct(a=ks.f32, v=vec2, n=int)
    s = kind(1, [2, 3], 4.7)
    assert s.to_dict() == {"a": 1.0, "v": [2.0, 3.0], "n": 4}
    assert kind().to_dict() == {"a": 0.0, "v": [0.0, 0.0], "n": 0}
    assert kind(n=2).n == kind({"n": 2}).n == kind(kind(n=2)).n == 2
    s.n = 2.9
    s.v = [7, 8]
    s.v.x = 9
    assert s.n == 2 and s.v.to_list() == [9, 8] and s.kind is kind
    nested = ks.types.struct(a=ks.f32, inner=ks.types.struct(c=int))
    assert nested(1, {"c": 3}).inner.c == 3 and nested().inner.c == 0
    assert kind == ks.types.struct(a=ks.f32, v=vec2, n=int) and hash(kind) == hash(
        ks.types.struct(a=ks.f32, v=vec2, n=int)
    )
    assert str(nested) == "struct(a: f32, inner: struct(c: int))"


def test_members_may_have_any_name():
    s = ks.types.struct(items=int, kind=int, keys=int)(1, 2, 3)
    assert (s.items, s.kind, s.keys) == (1, 2, 3) and str(s) == "{'items': 1, 'kind': 2, 'keys': 3}"
    f = ks.Struct.field({"kind": int, "offset": vec2, "name": int}, shape=2)
    f[1].kind = 3
    f.name[0] = 4
    f[0].offset = [1, 2]
    assert f.kind[1] == 3 and f[0].name == 4 and f.offset[0].y == 2 and f.shape == (2,)


def test_a_field_has_a_field_for_each_member():
    f = ks.Struct.field({"a": ks.f32, "v": vec2}, shape=3)
    f[0].a = 3
    f.a[1] = 4
    f[2].v[1] = 7
    f[2].v.x = 6
    assert f.a.to_numpy().tolist() == [3, 4, 0] and f.v[2].to_list() == [6, 7]
    assert (f.keys, f.get_member_field("v") is f.v, f.v.name, f.v.array.shape) == (
        ["a", "v"],
        True,
        "f_v",
        (2, 3),
    )
    assert f.parent() is f.v.parent() and f.snode.kind == "place"
    f[1] = f[2]
    f[1].a += 1
    assert f[1].to_dict() == {"a": 1.0, "v": [6.0, 7.0]}
    f[0] = ks.Struct(a=9, v=[1, 2])
    assert f[0]["a"] == 9 and f[0].v.to_list() == [1, 2]
    f[0] = {"a": 1, "v": [3, 4]}
    assert f[0].v.to_list() == [3, 4]


def test_whole_fields():
    kind = ks.types.struct(a=ks.f32, v=vec2, inner=ks.types.struct(c=int))
    f, g = kind.field(shape=2), ks.field(kind, 2)
    f.fill(3)
    assert f[1].to_dict() == {"a": 3.0, "v": [3.0, 3.0], "inner": {"c": 3}}
    f.fill(kind(a=1, v=[2, 3], inner={"c": 4}))
    g.copy_from(f)
    given = g.to_numpy()
    assert given["v"].tolist() == [[2, 3], [2, 3]] and given["inner"]["c"].tolist() == [4, 4]
    given["a"] = np.array([7.0, 8.0])
    f.from_numpy(given)
    assert f[1].a == 8 and f[0].inner.c == 4
    f[0].inner.c = 6
    assert f.inner.c[0] == 6 and str(f) == str(f.to_numpy())


def test_a_field_of_structs_is_placed_as_one():
    f = ks.Struct.field({"a": ks.f32, "v": vec2})
    ks.root.dense(ks.ij, (2, 3)).place(f, offset=(1, 1))
    f[1, 1].a = 2
    assert f.shape == (2, 3) and f.a.to_numpy()[0, 0] == 2
    g = ks.Struct.field({"a": ks.f32, "v": vec2})
    ks.root.dense(ks.i, 3).place(g.a)
    ks.root.dense(ks.i, 3).place(g.v)
    assert g.shape == (3,)


def test_dataclasses_have_methods():
    @ks.dataclass
    class Ball:
        position: vec2
        radius: ks.f32

        @ks.func
        def area(self):
            return 3 * self.radius**2

        def shifted(self, by):
            return Ball(self.position + by, self.radius)

    ball = Ball(position=[1, 2], radius=2)
    assert ball.area() == 12 and ball.shifted(1).position.to_list() == [2, 3]
    balls = Ball.field(shape=3)
    balls[1] = ball
    balls[1].radius = 3
    assert balls[1].area() == 27 and Ball.methods.keys() == {"area", "shifted"}
    assert str(Ball) == "Ball(position: vector(2, f32), radius: f32)"
    with pytest.raises(AttributeError, match="no member 'volume'"):
        ball.volume()


kind = "ks.types.struct(a=ks.f32)"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (f"{kind}(b=3)", r"struct\(a: f32\) has no member b"),
        (f"{kind}(1, 2)", r"struct\(a: f32\) takes 1 members, not 2"),
        (f"{kind}().__setattr__('b', 3)", "a struct of a has no member 'b'"),
        (f"{kind}()['b']", "a struct of a has no member 'b'"),
        (f"{kind}.field(shape=2)[2]", "has indices 0 to 1 along axis 0, not 2"),
        (f"{kind}.field(shape=2).__setitem__(0, 5)", "takes a struct with the members a, not 5"),
        (f"{kind}.field(shape=2).__setitem__(0, dict(b=1))", "takes a struct with a member a"),
        (f"{kind}.field(shape=2).get_member_field('b')", "has no member 'b': it has a"),
        (f"{kind}.field(shape=2).copy_from(ks.field(float, 2))", "takes a field of structs"),
        (f"{kind}.field()[0]", "has no place"),
        ("ks.types.struct(a='abc')", "'abc' is no type of elements"),
        ("ks.types.struct(**{'a b': int})", "'a b' is no name of a member"),
        (
            "ks.dataclass(type('T', (), dict(__annotations__=dict(a='nowhere'))))",
            "cannot be evaluated",
        ),
        (
            "ks.dataclass(type('T', (), dict(__annotations__=dict(a=int), a=3)))",
            "the member a of T has a value",
        ),
    ],
)
def test_what_goes_wrong_is_one_sentence_with_its_line(text, sentence):
    with pytest.raises(ks.LanguageError, match=sentence) as caught:
        eval(text, {"ks": ks})
    assert caught.value.where.file == "<string>"
