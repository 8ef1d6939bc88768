package visible

import "testing"

func TestShow(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"": "", "Ann\tBo\r\n": "Ann\tBo\r\n", "naïve 👨 שלום": "naïve 👨 שלום",
		"\u202egpj.exe": "[U+202E]gpj.exe", "a\u2066b\u2069": "a[U+2066]b[U+2069]", "a\x00\x1b": "a[U+0000][U+001B]",
		"a\u200d\u200bb": "a[U+200D][U+200B]b", "x\ufe0f\U000E0100": "x[U+FE0F][U+E0100]",
		"\u3164\u115f\u1160\uffa0\u034f\u2800": "[U+3164][U+115F][U+1160][U+FFA0][U+034F][U+2800]",
		"a\u2028b\u2029":                       "a[U+2028]b[U+2029]", "\U000E0041\ue000": "[U+E0041][U+E000]",
		"a\xffb": "a\ufffdb"} {
		if got := Show(text); got != want {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}
