// Word tables of the synthetic documents. Golden hashes depend on every entry and its position.
#pragma once
#include <array>
#include <string_view>

namespace triforce::synthetic_words {
using std::string_view;

inline constexpr auto kOnsets =
    std::to_array<string_view>({"b",  "br", "c", "cl", "cr", "d", "dr", "f",  "fl", "g", "gr", "h",
                                "j",  "k",  "l", "m",  "n",  "p", "pr", "qu", "r",  "s", "st", "t",
                                "th", "tr", "v", "w",  "y",  "z", "sh", "ch", "gl", "bl"});
inline constexpr auto kVowels = std::to_array<string_view>(
    {"a", "a", "a", "e", "e", "e", "i", "i", "o", "o", "o", "u", "u", "ea", "ia", "y"});
inline constexpr auto kCodas = std::to_array<string_view>(
    {"",  "",  "",   "n",  "n", "r",  "r",  "l",  "l",  "m",  "s",  "s",  "t",
     "d", "k", "nd", "rt", "x", "rk", "st", "th", "ss", "ll", "rn", "ck", "ng"});
inline constexpr auto kFamilyEnds = std::to_array<string_view>(
    {"",    "",    "",     "ar",   "en",   "ick",  "o",    "is",   "ow",  "ane", "ery", "wood",
     "man", "son", "mere", "well", "gate", "ford", "acre", "ling", "ard", "ane", "ova", "ham"});
inline constexpr auto kAvoided = std::to_array<string_view>(
    {"fuck", "fuk",   "shit", "cunt", "dick", "dik",  "cock", "cok",  "pen",
     "tit",  "cum",   "rap",  "nig",  "pis",  "crap", "jew",  "nazi", "kil",
     "dam",  "bitch", "ars",  "fag",  "spic", "kyk",  "pus"});
inline constexpr auto kPlaceEnds = std::to_array<string_view>(
    {"",      "ton",    "mouth", " Bridge", "by",     " Cross", "holm",    " Mill",
     "stead", "port",   "haven", " Hill",   " Abbey", "dale",   "minster", " Ferry",
     "wick",  " Heath", "brook", " Gate",   " Wells", "combe",  " Market", "fell",
     "mere",  "burgh",  "worth", " Green",  "ness",   " Quay"});
inline constexpr auto kAdjectives = std::to_array<string_view>(
    {"grey",   "red",     "blue",     "green",   "yellow",  "black",    "white",   "brown",
     "old",    "new",     "small",    "large",   "broken",  "mended",   "painted", "plain",
     "heavy",  "light",   "long",     "short",   "round",   "square",   "narrow",  "broad",
     "fine",   "rough",   "smooth",   "bright",  "dull",    "dark",     "pale",    "gilded",
     "carved", "cracked", "polished", "stained", "foreign", "borrowed", "stolen",  "hidden",
     "sealed", "open",    "empty",    "double",  "twisted", "scarlet",  "crooked", "spotted",
     "little", "worn"});
inline constexpr auto kMaterials = std::to_array<string_view>(
    {"pewter", "silver", "copper", "brass", "iron",    "tin",   "oak",   "elm",
     "walnut", "ivory",  "bone",   "horn",  "leather", "linen", "silk",  "woollen",
     "velvet", "glass",  "clay",   "stone", "marble",  "wax",   "straw", "wicker",
     "lead",   "steel",  "gold",   "amber", "pearl",   "cedar"});
inline constexpr auto kNouns = std::to_array<string_view>(
    {"cup",    "spoon",       "kettle", "lamp",    "bell",    "key",         "lock",    "chest",
     "box",    "ring",        "chain",  "buckle",  "knife",   "sword",       "saddle",  "bridle",
     "whip",   "cloak",       "glove",  "hat",     "shawl",   "gown",        "purse",   "mirror",
     "comb",   "clock",       "globe",  "compass", "map",     "book",        "psalter", "inkstand",
     "seal",   "candlestick", "basket", "barrel",  "plough",  "scythe",      "axe",     "hammer",
     "anvil",  "wheel",       "ladder", "bench",   "table",   "chair",       "cradle",  "coffin",
     "harp",   "fiddle",      "flute",  "drum",    "trumpet", "lantern",     "anchor",  "oar",
     "net",    "sail",        "flask",  "bowl",    "plate",   "jug",         "tray",    "cage",
     "statue", "crown",       "brooch", "locket",  "thimble", "needle-case", "loom",    "bolt"});
inline constexpr auto kTrades = std::to_array<string_view>(
    {"miller",  "notary",    "tanner",  "weaver",  "cooper",     "chandler",     "ferryman",
     "sexton",  "innkeeper", "glazier", "drover",  "apothecary", "schoolmaster", "widow",
     "captain", "steward",   "mason",   "fiddler", "clockmaker", "baker",        "surgeon",
     "pedlar",  "falconer",  "printer", "saddler", "bailiff",    "farrier",      "gardener",
     "pilot",   "clerk",     "curate",  "brewer"});
inline constexpr auto kMonths =
    std::to_array<string_view>({"January", "February", "March", "April", "May", "June", "July",
                                "August", "September", "October", "November", "December"});
inline constexpr auto kCoins = std::to_array<string_view>(
    {"crowns", "shillings", "guineas", "ducats", "florins", "pounds", "marks", "pence"});
inline constexpr auto kOrdinals = std::to_array<string_view>(
    {"first",        "second",         "third",        "fourth",        "fifth",
     "sixth",        "seventh",        "eighth",       "ninth",         "tenth",
     "eleventh",     "twelfth",        "thirteenth",   "fourteenth",    "fifteenth",
     "sixteenth",    "seventeenth",    "eighteenth",   "nineteenth",    "twentieth",
     "twenty-first", "twenty-second",  "twenty-third", "twenty-fourth", "twenty-fifth",
     "twenty-sixth", "twenty-seventh", "twenty-eighth"});
inline constexpr auto kSmallNumbers = std::to_array<string_view>(
    {"two",     "three",     "four",     "five",     "six",      "seven",    "eight",
     "nine",    "ten",       "eleven",   "twelve",   "thirteen", "fourteen", "fifteen",
     "sixteen", "seventeen", "eighteen", "nineteen", "twenty",   "thirty",   "forty",
     "fifty",   "sixty",     "seventy",  "eighty",   "ninety"});

// In the templates: {S} the page's subject, {F} the subject's full name, {P} the other person,
// {T} that person's trade, {L} a place, {G} goods, {A} a sum, {D} a date, {N} the page's number.
// A deal has four wordings that name the same things, a question and its answer.
inline constexpr int kWordings = 4;
struct Deal {
  std::array<string_view, kWordings> told;
  string_view question, answer;
};
inline constexpr auto kDeals = std::to_array<Deal>({
    {{"{S} sold {G} to {P} for {A}.", "For {A} {S} parted with {G}, and {P} has it now.",
      "{P} had {G} of {S} and paid {A}.", "{S} asked {A} for {G}, and it was {P} who gave it."},
     "What did {S} sell to {P}, and for how much?",
     "It was {G}, and {S} had {A} for it."},
    {{"{S} bought {G} of {P} for {A}.", "{S} gave {P} {A} and carried home {G}.",
      "{G} came to {S} from {P} at a price of {A}.",
      "{P} would not take less than {A} of {S} for {G}."},
     "What did {S} buy of {P}, and at what price?",
     "It was {G}, at {A}."},
    {{"{S} lent {A} to {P} on {D}.", "On {D} {P} came to {S} and borrowed {A}.",
      "{P} has {A} that belong to {S} since {D}.", "It was {P} to whom {S} lent {A} on {D}."},
     "How much did {S} lend to {P}, and when?",
     "It was {A}, on {D}."},
    {{"{S} owes {A} to {P} of {L}.", "There is a debt of {A} from {S} to {P}, who lives at {L}.",
      "{P} of {L} asks {A} of {S}.", "{S} still has to pay {P} {A} at {L}."},
     "What does {S} owe to {P}, and where must it be paid?",
     "It is {A}, to be paid at {L}."},
    {{"{S} promised {G} to {P} before {D}.", "{P} has the word of {S} for {G} by {D}.",
      "By {D} {S} must send {P} {G}, for so it was promised.",
      "{S} swore that {P} should have {G} before {D}."},
     "What did {S} promise to {P}, and by when?",
     "It was {G}, before {D}."},
    {{"{S} left {G} with {P} at {L}.", "{P} keeps {G} for {S} at {L}.",
      "In the house of {P} at {L} lies {G} that {S} put there.",
      "{S} rode to {L} and gave {G} into the hands of {P}."},
     "What does {P} keep for {S}, and where?",
     "It is {G}, and it lies at {L}."},
    {{"A letter from {P} came to {S} from {L}; it spoke of {G}.",
      "{P} wrote to {S} from {L} about {G}.",
      "{S} had news of {G} in a letter of {P}, sent from {L}.",
      "From {L} {P} sent {S} a letter, and with it {G}."},
     "Of what did {P} write to {S}, and from where?",
     "Of {G}, and the letter came from {L}."},
    {{"{S} rode to {L} on {D} and slept at the house of {P}.",
      "On {D} {S} came to {L} and found {P} at the door.", "{P} met {S} at {L} on {D}.",
      "It was on {D} that {S} went by water to {L} with {P}."},
     "Where did {S} meet {P}, and when?",
     "It was at {L}, on {D}."},
    {{"{S} lost {G} on the road to {L}, and {P} found it.",
      "{P} found {G} near {L}, and it was the one {S} had lost.",
      "At {L} {G} was taken from {S}, and {P} saw it done.",
      "{S} missed {G} after {L}; {P} brought it back."},
     "What did {S} lose that {P} found, and where?",
     "It was {G}, lost near {L}."},
    {{"{S} had {G} from {P}, who died at {L}.", "{P} died at {L} and left {S} {G}.",
      "By the will of {P} of {L} {S} has {G}.", "When they buried {P} at {L}, {S} was given {G}."},
     "What did {P} leave to {S}, and where did {P} die?",
     "It was {G}; {P} died at {L}."},
    {{"{P} swore at {L} that {S} had paid {A}.",
      "{S} called {P} to witness that {A} were paid at {L}.",
      "That {S} paid {A} at {L}, {P} will swear.", "{P} saw {S} count out {A} on a table at {L}."},
     "What did {P} see {S} pay, and where?",
     "It was {A}, at {L}."},
    {{"{S} hired {P} to mend {G} for {A}.", "{P} mended {G} for {S} and was paid {A}.",
      "For {A} {P} is to mend {G} for {S}.", "{S} gave {P} {A} to mend {G}."},
     "What did {P} mend for {S}, and for how much?",
     "It was {G}, for {A}."},
    {{"{S} took a house at {L} from {P} for {A} a year.",
      "{P} let the house at {L} to {S} for {A}.", "{S} pays {P} {A} a year for a house at {L}.",
      "Each year {P} has {A} of {S} for the house at {L}."},
     "Where is the house that {S} has of {P}, and what is the rent?",
     "It is at {L}, for {A} a year."},
    {{"{S} laid {A} against {G} with {P}, and lost.", "{P} won {A} of {S}, who hoped to win {G}.",
      "At cards {S} put {A} on the table and {P} put {G}.", "{P} and {S} played for {G} and {A}."},
     "What was the wager of {S} with {P}?",
     "It was {A} against {G}."},
    {{"{S} sent a nephew to {P}, the {T} of {L}.", "{P}, the {T}, took a nephew of {S} to {L}.",
      "The nephew of {S} serves {P}, who is the {T} at {L}.",
      "At {L} the {T} is {P}, and there {S} has a nephew."},
     "Who is the {T} that {S} sent a nephew to, and where?",
     "It is {P}, at {L}."},
});

// A kind of page: how it begins, how each line begins and ends, and how it ends.
struct Form {
  string_view name, heading, line_begin, line_end, closing;
  bool capital;  // whether a line's sentence begins with a capital letter
};
inline constexpr auto kForms = std::to_array<Form>({
    {"ledger", "The ledger of {F}, the {T} of {L}, page {N}.\n", "Item. ", "\n",
     "So stands the account of {F}.\n", true},
    {"letter", "A letter of {F} to the {T} of {L}, number {N}.\n", "", " ",
     "\nI am your servant, {F}.\n", true},
    {"will", "The last will of {F}, made at {L}, leaf {N}.\n", "Let it be known: ", "\n",
     "Signed with the mark of {F}.\n", false},
    {"deposition", "The oath of {F} before the {T} of {L}, sheet {N}.\n", "It is said that ", "\n",
     "More {F} would not say.\n", false},
    {"chronicle", "Of {F} and the {T} of {L}, chapter {N}.\n\n", "", " ",
     "\nThus far the matter of {F}.\n", true},
    {"daybook", "The daybook of {F}, kept at {L}, leaf {N}.\n", "- ", "\n",
     "Here {F} laid down the pen.\n", true},
    {"petition", "The petition of {F} to the {T} of {L}, number {N}.\n", "Also, ", "\n",
     "For all this {F} asks a just hearing.\n", false},
    {"rumour", "What was told of {F} at the inn at {L}, evening {N}.\n\n", "\"", "\"\n",
     "And they drank to {F}.\n", true},
});

// {K} is the name of the page's form.
inline constexpr auto kAgain = std::to_array<string_view>({
    "The {K} of {F}, number {N}, was brought out again and copied word for word.\n",
    "Then the {K} of {F} was read a second time, from the first line of number {N} to the last.\n",
    "We must go back to the {K} of {F}, number {N}; here it is again as it was written.\n",
    "The clerk opened the {K} of {F} at number {N} and read aloud.\n",
    "\"Read me once more the {K} of {F}, number {N},\" said the judge, and it was read.\n",
    "A true copy of the {K} of {F}, number {N}, follows.\n",
});
inline constexpr auto kRetold = std::to_array<string_view>({
    "What the {K} of {F}, number {N}, contains was told again in other words.\n",
    "Of the {K} of {F}, number {N}, a neighbour gave this account.\n",
    "In short, the {K} of {F}, number {N}, comes to this.\n",
});
inline constexpr auto kExamined = std::to_array<string_view>({
    "Then questions were put about the {K} of {F}, number {N}.\n",
    "The schoolmaster examined them in the {K} of {F}, number {N}.\n",
    "Who remembers the {K} of {F}, number {N}? They were asked, and they answered.\n",
});
inline constexpr auto kInterludes = std::to_array<string_view>({
    "It rained at {L} all that week, and the road was under water.",
    "The bells of {L} rang for an hour, and nobody knew why.",
    "{P} came down to the river and looked for the boat.",
    "At {L} the market was poor and bread was dear.",
    "There was talk of {P} in the kitchen until the fire was low.",
    "The coach from {L} was late, for a wheel had broken.",
    "\"I have heard nothing from {P},\" said the {T}, \"since {D}.\"",
    "Snow lay upon {L}, and the wolves were heard at night.",
    "The {T} of {L} had a cough that winter and kept to the house.",
    "{P} shut the window, trimmed the lamp, and sat down to think.",
    "In the year of the great wind the roof of the church at {L} was carried off.",
    "A stranger asked the way to {L}, and {P} told him.",
    "\"You will find {P} at {L},\" said the old woman, \"if you find anyone.\"",
    "They spoke of the price of corn, and of {P}, and of the war.",
    "The fair at {L} began on {D}, and the whole country went to it.",
    "Nothing more was done that day, and the papers were put by.",
    "{P}, who was the {T}, sang two songs and forgot the third.",
    "The moon rose over {L}, and the dogs began to bark.",
});
}  // namespace triforce::synthetic_words
