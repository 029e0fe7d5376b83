"""What a user may begin to say: openings, tasks over topics, passages to work on. Knows text; knows no token ids."""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from pydoc_data.topics import topics

OPENINGS = (
    "Write a", "Write an", "Write", "Write a short", "Write a poem about", "Write a story about", "Write a Python",
    "Write a function", "Write an email", "Write a letter", "What is", "What is the", "What are", "What are the",
    "What are some", "What does", "What would", "Who", "Who was", "When", "When did", "Where", "Where can I", "Why",
    "Why do", "Why is", "How", "How do I", "How do you", "How can I", "How does", "How would you", "How many",
    "Can you", "Can you explain", "Could you", "Could you help me", "Please", "Please write", "I need", "I want to",
    "I'm", "I am", "I have", "I'd like", "My", "Give me", "Give me a list of", "Give", "List", "List the", "Explain",
    "Explain how", "Explain why", "Describe", "Describe the", "Tell me", "Tell me about", "Help me", "Summarize",
    "Create", "Create a", "Design a", "Generate", "Make a", "Suggest", "Recommend", "Compare", "Translate", "Convert",
    "Rewrite", "Solve", "Calculate", "Find", "Is", "Is it", "Are", "Do", "Does", "Should I", "Let's", "Suppose",
    "Imagine", "Consider", "Given", "If", "In", "The", "A", "As a", "You are", "Hi", "Hello", "Thanks", "Which",
    "Name", "Define", "Discuss", "Plan a", "Outline", "Show me", "Teach me", "Correct", "Implement", "Fix", "Classify",
)  # fmt: skip
TASKS = (
    "Explain {} to a beginner.", "Explain {} in simple words.", "What is {}?", "What should I know about {}?",
    "Give me five facts about {}.", "List the advantages and disadvantages of {}.", "Write a short poem about {}.",
    "Write a short story about {}.", "Write a paragraph about {}.", "Write an essay about {}.", "Tell me about {}.",
    "How does {} work?", "Why is {} important?", "What are common mistakes with {}?", "Give me three tips about {}.",
    "Summarize what is known about {}.", "Write a blog post introduction about {}.", "Describe {} in two sentences.",
    "Can you give me an example of {}?", "What is the history of {}?", "Write ten questions for a quiz about {}.",
    "Create a study plan for {}.", "How would you teach {} to a child?", "Write a tweet about {}.",
    "What are the key terms related to {}?", "Make a table about {}.", "Write a dialogue about {}.",
    "Compare {} with something similar.", "What are the latest ideas about {}?", "Is {} difficult to learn?",
    "Write an email to a colleague about {}.", "Outline a talk on {}.", "What tools do I need for {}?",
    "What would happen without {}?", "Give a definition of {}.", "Write a product description related to {}.",
    "Explain {} step by step.", "What questions do experts ask about {}?", "Write a song about {}.",
    "What are the main parts of {}?",
)  # fmt: skip
TOPICS = (
    "photosynthesis", "gravity", "the water cycle", "black holes", "vaccines", "the immune system", "plate tectonics",
    "electric cars", "solar power", "wind turbines", "nuclear fusion", "batteries", "the French Revolution",
    "the Roman Empire", "the Silk Road", "the Cold War", "the printing press", "ancient Egypt", "the Renaissance",
    "democracy", "inflation", "the stock market", "compound interest", "supply and demand", "budgeting", "insurance",
    "a mortgage", "taxes", "starting a small business", "marketing", "leadership", "teamwork", "time management",
    "public speaking", "job interviews", "writing a resume", "negotiation", "remote work", "project management",
    "Python lists", "recursion", "binary search", "sorting algorithms", "hash tables", "linked lists", "SQL joins",
    "regular expressions", "unit testing", "version control", "object-oriented programming", "an API", "databases",
    "machine learning", "neural networks", "encryption", "computer viruses", "operating systems", "the Internet",
    "cloud computing", "HTML and CSS", "JavaScript", "prime numbers", "fractions", "probability", "derivatives",
    "the Pythagorean theorem", "statistics", "geometry", "linear equations", "logic puzzles", "chess", "football",
    "running a marathon", "yoga", "meditation", "sleep", "healthy eating", "vitamins", "losing weight", "stress",
    "first aid", "gardening", "growing tomatoes", "houseplants", "bees", "butterflies", "elephants", "sharks",
    "penguins", "dinosaurs", "dogs", "cats", "birds", "whales", "rain forests", "deserts", "volcanoes", "earthquakes",
    "the ocean", "rivers", "mountains", "the moon", "Mars", "the solar system", "space travel", "telescopes",
    "climate change", "recycling", "pollution", "autumn", "winter", "spring", "summer", "friendship", "love",
    "courage", "honesty", "patience", "loneliness", "happiness", "a lost key", "an old lighthouse", "a talking cat",
    "a robot", "a dragon", "time travel", "a haunted house", "a detective", "a train journey", "baking bread",
    "making pasta", "coffee", "tea", "chocolate", "pizza", "soup", "cheese", "barbecue", "vegetarian cooking",
    "learning a language", "Spanish verbs", "English grammar", "punctuation", "reading books", "poetry", "novels",
    "the guitar", "the piano", "jazz", "classical music", "painting", "photography", "film making", "theatre",
    "architecture", "bridges", "airplanes", "ships", "bicycles", "trains", "traveling on a budget", "camping",
    "packing for a trip", "Japan", "Brazil", "Kenya", "Iceland", "India", "Canada", "museums", "holidays",
    "birthday parties", "weddings", "raising children", "school", "homework", "exams", "university", "teachers",
    "philosophy", "ethics", "psychology", "memory", "creativity", "critical thinking", "the scientific method",
    "atoms", "chemical bonds", "acids and bases", "magnets", "light", "sound", "energy", "DNA", "evolution", "cells",
    "bacteria", "the heart", "the brain", "genetics", "social media", "privacy", "artificial intelligence",
)  # fmt: skip
PASSAGE_TASKS = (
    "Summarize the following text.", "Summarize this in one sentence.", "What is the main point of this text?",
    "Rewrite the following text in simpler words.", "Rewrite this text to be more friendly.",
    "Rewrite this to be more formal.", "Make this text shorter.", "List the key points of this text.",
    "Correct the grammar of this text.", "Write three questions about this text.", "Explain this text to me.",
    "Turn this into bullet points.", "Repeat the following text, then comment on it.", "Give this text a title.",
)  # fmt: skip


def topic_questions(rng: random.Random) -> Iterator[str]:
    """Every task on every topic, in random order."""
    pairs = [(task, topic) for task in TASKS for topic in TOPICS]
    rng.shuffle(pairs)
    for task, topic in pairs:
        yield task.format(topic)


def passage_questions(passages: Sequence[str], rng: random.Random) -> Iterator[str]:
    """A task on each passage, in random order."""
    for passage in rng.sample(passages, len(passages)):
        task = rng.choice(PASSAGE_TASKS)
        yield f"{task}\n\n{passage}" if rng.random() < 0.7 else f"{passage}\n\n{task}"


@cache
def packaged_passages() -> tuple[str, ...]:
    """Text that comes with Python: its language reference and the documentation of its library. Takes seconds, once."""
    texts = list(topics.values())
    for file in sorted(Path(ast.__file__).parent.glob("*.py")):
        texts += _docstrings(file)
    return tuple(passage for text in texts for passage in passages_of(text))


def passages_of(text: str, shortest: int = 150, longest: int = 700) -> Iterator[str]:
    """Paragraphs, joined until they are `shortest` characters long; longer ones than `longest` are left out."""
    joined = ""
    for paragraph in re.split(r"\n\s*\n", text):
        joined = f"{joined}\n\n{_unwrapped(paragraph)}".strip()
        if len(joined) >= shortest:
            if len(joined) <= longest:
                yield joined
            joined = ""


def _docstrings(file: Path) -> Iterator[str]:
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, kinds) and (text := ast.get_docstring(node)):
            yield text


def _unwrapped(paragraph: str) -> str:
    """Prose without its line breaks; code and lists, told by their indentation or marks, as they are."""
    lines = paragraph.strip("\n").splitlines()
    prose = all(re.match(r"[A-Za-z(\"'*`]", line) for line in lines)
    return " ".join(line.strip() for line in lines) if prose else paragraph
