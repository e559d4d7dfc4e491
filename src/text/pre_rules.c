/* The table of pre-tokenisers. The patterns are those that the models were trained with, as the
 * reference engine runs them; what differs from the published ones is only the way they are
 * written:
 * - white space is spelled out (PCRE2's \s has U+180E, which is none);
 * - quantifiers are possessive wherever giving back can't lead to a match, so that a run of one
 *   class costs one pass;
 * - "\s*[\r\n]+" is BLANK_NL: all of a white-space run up to its last line end, without looking
 *   for it from behind.
 * Two quirks of the reference are kept, because its ids are the contract: "~" is no symbol for
 * deepseek-v3, and white space is never part of the wide ranges of deepseek-llm and -coder.
 */
#include "text/pretokenize.h"

#define WS     \
    "\\t-\\r " \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define WS_NO_NL     \
    "\\t\\x{0b}\\f " \
    "\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define BLANK_NL "(?:[" WS_NO_NL "]*+[\\r\\n]++)++"
/* White space before other text leaves its last character to what follows. */
#define WS_TAIL "[" WS "]+(?![^" WS "])"

#define CONTRACTION_ANY_CASE "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define NOT_WORD "[^" WS "\\p{L}\\p{N}]"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}++| ?\\p{N}++| ?" NOT_WORD "++|" WS_TAIL "|[" WS "]++"

#define WORDS_OF(letters, digits, symbols, tail)                                                 \
    CONTRACTION_ANY_CASE "|" letters "|" digits "| ?" symbols "++" tail "|" BLANK_NL "|" WS_TAIL \
                         "|[" WS "]++"
#define LLAMA3 WORDS_OF("[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++", "\\p{N}{1,3}+", NOT_WORD, "[\\r\\n]*+")
#define QWEN2 WORDS_OF("[^\\r\\n\\p{L}\\p{N}]?+\\p{L}++", "\\p{N}", NOT_WORD, "[\\r\\n]*+")
/* The optional first character may itself be a mark, so it must be given back. */
#define QWEN35                                                                                  \
    WORDS_OF("[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]++", "\\p{N}", "[^" WS "\\p{L}\\p{M}\\p{N}]", \
             "[\\r\\n]*+")

/* Words in two halves, X*Y+ or else X+Y*, where X is any letter but a-z and Y any letter but A-Z.
 * Letters outside ASCII are in both, so X*Y+ ends at the last of them or goes on from an a-z. */
#define CASED_BOTH "[^\\P{L}A-Za-z]"
#define CASED_Y "[^\\P{L}A-Z]"
#define CASED_WORD                                                                           \
    "[^\\r\\n\\p{L}\\p{N}]?+(?:(?:[A-Z]*+" CASED_BOTH "++)++(?:[A-Z]*+[a-z]" CASED_Y "*+)?+" \
    "|[A-Z]*+[a-z]" CASED_Y "*+|[A-Z]++)"
#define CASED_TAIL " ?" NOT_WORD "++[\\r\\n/]*+|" BLANK_NL "|" WS_TAIL "|[" WS "]++"

/* U+0800 to U+4E00 without white space, then the rest of the CJK and Hangul ranges. */
#define DEEPSEEK_WIDE                                                              \
    "[\\x{4e00}-\\x{9fa5}\\x{800}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}" \
    "\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{4e00}" \
    "\\x{ac00}-\\x{d7ff}]++"

/* Cased letters of the scripts that have case, as deepseek-llm lists them. */
#define DEEPSEEK_LETTERS                                                                       \
    "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}"             \
    "\\x{1c4}-\\x{293}\\x{295}-\\x{2af}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}"     \
    "\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}\\x{3a3}-\\x{3f5}"              \
    "\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}"                   \
    "\\x{13a0}-\\x{13f5}\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}"             \
    "\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}"             \
    "\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}\\x{1f50}-\\x{1f57}\\x{1f59}"    \
    "\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}"     \
    "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}"             \
    "\\x{1fe0}-\\x{1fec}\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}"              \
    "\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}\\x{2126}\\x{2128}\\x{212a}-\\x{" \
    "212d}"                                                                                    \
    "\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}\\x{2183}"     \
    "\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}"     \
    "\\x{a640}-\\x{a66d}\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}"             \
    "\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}"             \
    "\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}\\x{104b0}-\\x{104d3}"         \
    "\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"     \
    "\\x{1e900}-\\x{1e943}"

#define ASCII_PUNCT "[!-/:-@\\[-`{-~]"
#define PUNCT_OR_SYMBOL "(?:(?!~)[\\p{P}\\p{S}])"

const struct pn_pre_rule pn__pre_rules[] = {
    {
        .name = "default",
        .aliases = "",
        .patterns = {"[\\p{P}$+<=>^~|]++", GPT2, "\\p{N}++", "[0-9][0-9][0-9]"},
    },
    {
        .name = "llama-bpe",
        .aliases = "llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
        .patterns = {LLAMA3},
        .ignore_merges = true,
        .add_bos = true,
    },
    {
        .name = "dbrx",
        .aliases = "smaug-bpe glm4 chatglm-bpe",
        .patterns = {LLAMA3},
    },
    {
        .name = "qwen2",
        .aliases = "deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan solar-open grok-2",
        .patterns = {QWEN2},
    },
    {
        .name = "qwen35",
        .aliases = "",
        .patterns = {QWEN35},
    },
    {
        .name = "gpt-2",
        .aliases = "phi-2 gigachat a.x-4.0 mellum exaone4 mpt jais trillion granite-docling "
                   "jina-es jina-de jina-v2-es jina-v2-de modern-bert",
        .patterns = {GPT2},
    },
    {
        .name = "olmo",
        .aliases = "",
        .patterns = {GPT2},
    },
    {
        .name = "smollm",
        .aliases = "codeshell exaone minerva-7b mellum2",
        .patterns = {"\\p{N}", GPT2},
    },
    {
        .name = "starcoder",
        .aliases = "",
        .patterns = {"\\p{N}", GPT2},
    },
    {
        .name = "refact",
        .aliases = "",
        .patterns = {"\\p{N}", GPT2},
    },
    {
        .name = "command-r",
        .aliases = "",
        .patterns = {"\\p{N}", GPT2},
    },
    {
        .name = "falcon",
        .aliases = "",
        .patterns = {"[\\p{P}$+<=>^~|`]++", GPT2, "[0-9][0-9][0-9]"},
    },
    {
        .name = "deepseek-llm",
        .aliases = "",
        .patterns = {"[\\r\\n]", "[" WS "]?+[" DEEPSEEK_LETTERS "]++",
                     "[" WS "]?+[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}"
                     "\\x{3001}\\x{3002}]++",
                     /* The end of a segment; the look behind keeps the search to one try a run. */
                     "(?<![" WS "])[" WS "]++\\z", DEEPSEEK_WIDE, "\\p{N}++"},
    },
    {
        .name = "deepseek-coder",
        .aliases = "",
        .patterns = {"[\\r\\n]", "[" WS "]?+\\p{L}++", "[" WS "]?+\\p{P}++", DEEPSEEK_WIDE,
                     "\\p{N}"},
    },
    {
        .name = "deepseek-v3",
        .aliases = "hunyuan-dense joyai-llm hy_v4",
        .patterns =
            {"\\p{N}{1,3}+", "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{30ff}]++",
             ASCII_PUNCT
             "[A-Za-z]++|(?:[^\\r\\n\\p{L}\\p{P}\\p{S}]|~)?[\\p{L}\\p{M}]++| ?" PUNCT_OR_SYMBOL
             "++[\\r\\n]*+|" BLANK_NL "|" WS_TAIL "|[" WS "]++"},
    },
    {
        .name = "gpt-4o",
        .aliases = "llama4 kanana2 talkie minimax-m2",
        .patterns = {CASED_WORD "(?:" CONTRACTION_ANY_CASE ")?+|\\p{N}{1,3}+|" CASED_TAIL},
    },
    {
        .name = "tekken",
        .aliases = "",
        .patterns = {CASED_WORD "|\\p{N}|" CASED_TAIL},
        .ignore_merges = true,
        .add_bos = true,
    },
    {
        .name = "gemma4",
        .aliases = "",
        .patterns = {"\\n++"},
        .add_bos = true,
        .chars = true,
    },
};
const size_t pn__pre_rule_n = PN_ARRAY_N(pn__pre_rules);
