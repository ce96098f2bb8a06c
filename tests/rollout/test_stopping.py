import pytest

from agentic_jax.rollout.stopping import tokens_to_stop


def decode(token_ids):
    return bytes(token_ids).decode(errors="replace")


@pytest.mark.parametrize(
    "text, stops, checked, keep",
    [
        ("ab</x>cd", ("</x>",), 0, 6),
        ("ab</x>cd", ("</x>",), 5, 6),  # Begins before what was checked.
        ("ab</x", ("</x>",), 0, None),
        ("ab\n\ncd", ("zz", "\n"), 0, 3),
        ("aéb", ("é",), 0, 3),  # Two bytes: complete at the second.
        ("é" * 9 + "STOP", ("STOP",), 20, 22),
    ],
)
def test_keeps_up_to_the_token_that_completes_the_string(text, stops, checked, keep):
    tokens = list(text.encode())
    assert tokens_to_stop(tokens, stops, decode, checked=checked) == keep


def test_decodes_only_the_end_of_a_long_text():
    seen = []

    def spy(token_ids):
        seen.append(len(token_ids))
        return decode(token_ids)

    assert tokens_to_stop([97] * 1000, ("xyz",), spy, checked=990) is None
    assert seen == [22]
