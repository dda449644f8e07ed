// Word tables of the synthetic documents. Golden hashes depend on every entry and its position.
#pragma once
#include <array>
#include <string_view>

namespace triforce::synthetic_words {
using std::string_view;

// Given names and surnames that the built-in tokenizer writes in one or two tokens.
inline constexpr auto kMen = std::to_array<string_view>(
    {"John",   "George",  "Henry",  "Peter",  "Paul",   "Arthur", "Frank",   "Jack",    "Jim",
     "Tom",    "Will",    "Sam",    "Ben",    "Ralph",  "James",  "William", "Charles", "Robert",
     "Edward", "Richard", "Samuel", "David",  "Andrew", "Albert", "Mark",    "Luke",    "Adam",
     "Harry",  "Ned",     "Max",    "Roger",  "Louis",  "Hans",   "Ivan",    "Edgar",   "Percy",
     "Neil",   "Noah",    "Abel",   "Luis",   "Dick",   "Bob",    "Ted",     "Phil",    "Bill",
     "Harold", "Herbert", "Howard", "Donald", "Eric",   "Gerald", "Giles",   "Guy",     "Hector",
     "Ian",    "Miles",   "Norman"});
inline constexpr auto kWomen = std::to_array<string_view>(
    {"Mary",  "Anne",  "Elizabeth", "Jane",   "Emily", "Ann",     "Anna",      "Margaret",
     "Alice", "Emma",  "Kate",      "Ellen",  "Fanny", "Frances", "Lucy",      "Maria",
     "Rose",  "Ruth",  "Grace",     "Flora",  "Edith", "Dora",    "Clara",     "Amy",
     "Eliza", "Eve",   "Joan",      "Judith", "Lily",  "Marian",  "Marie",     "Marion",
     "Molly", "Nancy", "Nora",      "Polly",  "Sally", "Ada",     "Christina", "Nell"});
inline constexpr auto kSurnames = std::to_array<string_view>(
    {"King",   "West",   "French",   "May",    "Smith",  "Brown",   "Jones",    "Johnson", "White",
     "Wood",   "Hall",   "Clark",    "Hill",   "Carter", "Ward",    "Bell",     "Cook",    "Black",
     "Gray",   "Young",  "Scott",    "Allen",  "Adams",  "Wright",  "Stone",    "Fox",     "Hunt",
     "Shaw",   "Lee",    "Long",     "Price",  "Mason",  "Newman",  "Page",     "Perry",   "Pope",
     "Rice",   "Rogers", "Ross",     "Thorn",  "Webb",   "Wells",   "Weston",   "Yates",   "York",
     "Archer", "Ball",   "Bates",    "Beck",   "Bird",   "Bishop",  "Blake",    "Bond",    "Brand",
     "Buck",   "Butler", "Chambers", "Church", "Cole",   "Conway",  "Cross",    "Dale",    "Davis",
     "Day",    "Dean",   "Edwards",  "Field",  "Ford",   "Forster", "Franklin", "Grant",   "Hale",
     "Harper", "Hart",   "Hood",     "Hope",   "Howe",   "Hume",    "Jackson",  "Kay",     "Kent",
     "Knight", "Lamb",   "Lane",     "Lang",   "Leigh",  "Mann",    "Manning",  "Mead",    "Moss",
     "Myers",  "Nash",   "Newton",   "Noble",  "North",  "Park",    "Penn",     "Pitt",    "Pratt",
     "Reed",   "Reid",   "Rivers",   "Short",  "Slater", "Snow",    "Stark",    "Vane",    "Wade",
     "Willis", "Barrow", "Weller",   "Carr",   "Drew",   "Forrest", "Heath",    "Trent",   "Vance",
     "Weber",  "Moreau", "Moreno"});

// A place is a town, or one of the spots of every town: "the old mill".
inline constexpr auto kTowns = std::to_array<string_view>(
    {"London", "Paris", "Rome", "Bath", "Dover", "Kingston", "Perth", "Cork", "Madrid", "Ely",
     "Henley", "Margate", "Deal", "Dorking", "Newark", "Hereford"});
inline constexpr auto kSpotKinds = std::to_array<string_view>(
    {"old", "new", "upper", "lower", "little", "great", "red", "white", "north", "stone"});
inline constexpr auto kSpots = std::to_array<string_view>(
    {"mill", "inn", "farm", "school", "church", "bridge", "house", "station", "market", "castle",
     "tower", "garden", "hall", "shop", "court", "gate"});

// Goods come in kinds, so that what is said of a thing can be true of it.
inline constexpr std::size_t kGoodsAdjectives = 14, kGoodsMaterials = 6, kGoodsNouns = 14;
struct GoodsKind {
  std::array<string_view, kGoodsAdjectives> adjectives;
  std::array<string_view, kGoodsMaterials> materials;
  std::array<string_view, kGoodsNouns> nouns;
};
inline constexpr auto kGoods = std::to_array<GoodsKind>({
    {{"old", "small", "large", "heavy", "broken", "plain", "fine", "bright", "round", "little",
      "new", "foreign", "curious", "pretty"},
     {"silver", "gold", "iron", "brass", "copper", "tin"},
     {"cup", "spoon", "lamp", "bell", "key", "ring", "chain", "knife", "box", "plate", "cross",
      "clock", "bowl", "kettle"}},
    {{"old", "long", "short", "warm", "heavy", "worn", "fine", "blue", "red", "green", "black",
      "white", "new", "torn"},
     {"silk", "linen", "cotton", "velvet", "wool", "lace"},
     {"coat", "dress", "shirt", "cap", "gown", "cloak", "shawl", "sheet", "curtain", "scarf",
      "handkerchief", "bonnet", "veil", "apron"}},
    {{"old", "broad", "narrow", "low", "high", "heavy", "light", "painted", "polished", "broken",
      "dark", "square", "round", "plain"},
     {"oak", "pine", "walnut", "elm", "cedar", "beech"},
     {"table", "chair", "chest", "bed", "desk", "door", "bench", "ladder", "boat", "cart", "wheel",
      "barrel", "frame", "cupboard"}},
    {{"old", "new", "worn", "brown", "black", "small", "large", "soft", "stiff", "thin", "thick",
      "good", "cheap", "torn"},
     {"leather", "calf", "sheepskin", "deerskin", "goatskin", "canvas"},
     {"bag", "belt", "saddle", "purse", "case", "strap", "apron", "cap", "cover", "coat", "trunk",
      "harness", "jacket", "bottle"}},
    {{"old", "young", "fine", "lame", "strong", "quiet", "wild", "large", "little", "fat", "thin",
      "good", "lost", "sick"},
     {"white", "black", "brown", "grey", "red", "spotted"},
     {"horse", "cow", "dog", "cat", "goat", "pig", "sheep", "goose", "hen", "pony", "calf", "mule",
      "bull", "bird"}},
    {{"old", "long", "short", "torn", "rare", "thick", "thin", "curious", "famous", "little",
      "great", "French", "German", "Latin"},
     {"printed", "written", "painted", "bound", "faded", "stained"},
     {"book", "letter", "map", "picture", "play", "poem", "Bible", "song", "drawing", "list",
      "paper", "history", "will", "portrait"}},
});
inline constexpr auto kTrades = std::to_array<string_view>(
    {"doctor", "lawyer",  "captain", "teacher", "priest",  "farmer", "baker",   "miller",
     "judge",  "clerk",   "major",   "painter", "printer", "sailor", "butcher", "gardener",
     "master", "colonel", "servant", "banker",  "soldier", "keeper", "porter",  "merchant"});
inline constexpr auto kMonths =
    std::to_array<string_view>({"January", "February", "March", "April", "May", "June", "July",
                                "August", "September", "October", "November", "December"});
inline constexpr auto kCoins =
    std::to_array<string_view>({"pounds", "shillings", "guineas", "crowns", "dollars", "francs"});
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

inline constexpr auto kMoods = std::to_array<string_view>(
    {"tired",   "angry",   "happy", "sad",    "hungry",    "afraid", "cold",    "pleased",
     "quiet",   "lonely",  "ill",   "weak",   "ashamed",   "proud",  "hopeful", "silent",
     "anxious", "curious", "sorry", "sleepy", "impatient", "polite", "careful", "merry"});
inline constexpr auto kActions = std::to_array<string_view>({"shut the window",
                                                             "sat down by the fire",
                                                             "went up to bed",
                                                             "walked about the room",
                                                             "opened the door",
                                                             "drank a glass of wine",
                                                             "put on a coat",
                                                             "looked into the street",
                                                             "wrote two letters",
                                                             "laughed",
                                                             "began to sing",
                                                             "read the paper",
                                                             "had dinner alone",
                                                             "lit the lamp",
                                                             "fell asleep",
                                                             "cut some bread",
                                                             "went down to the river",
                                                             "called the dog",
                                                             "asked for tea",
                                                             "counted the money",
                                                             "turned pale",
                                                             "said good night",
                                                             "sighed",
                                                             "took a seat near the door",
                                                             "stood still",
                                                             "came back late",
                                                             "made no answer",
                                                             "ran into the garden",
                                                             "waited an hour",
                                                             "smiled"});
inline constexpr auto kWeather = std::to_array<string_view>(
    {"it rained", "the sun was high", "snow lay on the fields", "the wind had risen", "it was dark",
     "the moon was up", "the night was cold", "it was a fine day", "there was a thick fog",
     "the river was rising", "it was growing warm", "the bells were ringing", "the stars were out",
     "it was still early", "the storm was over", "the roads were deep in mud"});
inline constexpr auto kTimes =
    std::to_array<string_view>({"that night",      "in the morning", "the next day",
                                "after dinner",    "on Sunday",      "all that week",
                                "towards evening", "at last",        "before breakfast",
                                "an hour later",   "that winter",    "in the afternoon",
                                "a month later",   "at six o'clock", "when the clock struck ten",
                                "on the way home", "in those days",  "early in the spring",
                                "next morning",    "at noon"});
inline constexpr auto kThings = std::to_array<string_view>({"the newspaper",
                                                            "the old clock",
                                                            "a bottle of wine",
                                                            "the horses",
                                                            "the letters",
                                                            "the carriage",
                                                            "a chair",
                                                            "the long table",
                                                            "a piece of bread",
                                                            "the lamp",
                                                            "a glass of milk",
                                                            "the dog",
                                                            "a box of letters",
                                                            "the supper",
                                                            "the coffee",
                                                            "the pictures",
                                                            "the keys",
                                                            "a pair of boots",
                                                            "a basket of apples",
                                                            "the blankets",
                                                            "the accounts",
                                                            "the flowers",
                                                            "the dishes",
                                                            "the tea"});
}  // namespace triforce::synthetic_words
