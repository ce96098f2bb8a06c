import pytest

from agentic_jax.chat.tokenizer import TEMPLATES, load_tokenizer, train_tokenizer

TEXTS = [
    "What is 12 times 34? Use the python tool: print(12*34)\nThe answer is 408." * 3,
    '<tool_call>\n{"name": "python", "arguments": {"code": "print(1)"}}\n</tool_call>',
]
TAGS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>")


@pytest.fixture(scope="module")
def trained():
    return train_tokenizer(TEXTS, vocab_size=320)


def encode(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


def test_the_vocabulary_has_the_size_asked_for(trained):
    assert len(trained) == 320
    assert max(trained.get_vocab().values()) == 319


@pytest.mark.parametrize(
    "text",
    [
        "",
        " a  b\t\n\n c ",
        "don't , stop .",
        "é 你好 🙂 \u2028 \x85 \x00",
        "12.5+3=15.5 <|im_end|> <tool_call>{}</tool_call>",
        "<tool_response>\n4\n</tool_response>",
    ],
)
def test_decoding_gives_the_text_back(trained, text):
    ids = encode(trained, text)
    assert trained.decode(ids, clean_up_tokenization_spaces=False) == text


def test_each_digit_and_each_tag_is_one_token(trained):
    assert len(encode(trained, "1234567890")) == 10
    for tag in (*TAGS, "<tool_response>", "</tool_response>"):
        assert len(encode(trained, tag)) == 1


def test_training_twice_gives_the_same_tokenizer(trained):
    again = train_tokenizer(TEXTS, vocab_size=320)
    assert again.get_vocab() == trained.get_vocab()
    assert encode(again, TEXTS[0]) == encode(trained, TEXTS[0])


def test_saving_and_loading_keeps_ids_and_template(trained, tmp_path):
    trained.save_pretrained(tmp_path)
    loaded = load_tokenizer(tmp_path)
    assert encode(loaded, TEXTS[1]) == encode(trained, TEXTS[1])
    assert loaded.chat_template == TEMPLATES["hermes_short"]
    assert (loaded.eos_token, loaded.pad_token) == ("<|im_end|>", "<|endoftext|>")


def test_a_vocabulary_without_room_for_bytes_is_refused():
    with pytest.raises(ValueError, match="vocab_size is 262; .* 263"):
        train_tokenizer([], vocab_size=262)


def test_unusable_directories_are_named(trained, tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere is not a directory"):
        load_tokenizer(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="has no tokenizer"):
        load_tokenizer(tmp_path)
    (tmp_path / "tokenizer.json").write_text("{broken")
    with pytest.raises(ValueError, match="cannot read the tokenizer"):
        load_tokenizer(tmp_path)


def test_a_missing_chat_template_is_an_error_unless_one_is_given(tmp_path):
    tokenizer = train_tokenizer([], vocab_size=263)
    tokenizer.chat_template = None
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="no chat template; set template"):
        load_tokenizer(tmp_path)
    with pytest.raises(ValueError, match="unknown template 'hermse'"):
        load_tokenizer(tmp_path, template="hermse")
    assert load_tokenizer(tmp_path, template="hermes").chat_template
