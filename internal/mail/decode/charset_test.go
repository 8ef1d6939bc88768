package decode

import (
	"strings"
	"testing"
)

func TestCharsetNames(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ names, in, want string }{
		{"utf-8 UTF8 utf_8 x-utf8 unicode-1-1-utf-8 'utf-8' \"utf-8\" utf-8*de us-ascii x-unknown unknown-8bit nonsense " +
			"cp65001 windows-65001",
			"\xc3\xbc \xfc", "ü ü"},
		{"utf-7 UTF7 unicode-1-1-utf-7 x-unicode-1-1-utf-7 csUTF7 cp65000", "+APw-", "ü"},
		{"iso-8859-1 iso8859-1 iso_8859_1 8859_1 ISO-8859_1 latin1 latin-1 iso-latin-1 l1 cp819 cp1252 windows_1252 " +
			"windows1252 win-1252 " +
			"1252 cp28591 ansi_x3.110-1983", "\xa3\xfc", "£ü"},
		{"iso-8859-2 ISO_8859-2 iso8859_2 latin-2 latin2 8859-2 cp28592", "\xb3", "ł"},
		{"iso-8859-15 iso8859_15 latin-9 cp28605", "\xa4", "€"},
		{"iso-8859-8-i iso-8859-8 iso-8859-8-e windows-1255 cp-1255", "\xe0", "א"},
		{"windows-1251 cp1251 cp-1251 CP_1251 x-cp1251 win1251 windows_1251 ms-1251", "\xcf", "П"},
		{"koi8-r KOI8R koi8_r cp20866", "\xf0", "П"},
		{"cp850 cp-850 ibm850 ibm-850 850 x-cp850 dos-850 CP_850", "\x81\x9b", "üø"},
		{"cp437 cp-437 ibm-437 437 dos437", "\x81", "ü"},
		{"cp866 cp-866 ibm866 dos-866", "\x8f", "П"},
		{"windows-874 tis-620 iso-8859-11 cp874", "\xa1", "ก"},
		{"shift_jis shift-jis sjis x-sjis cp932 ms932 windows-31j windows-932 cp-932", "\x93\xfa", "日"},
		{"iso-2022-jp ISO2022JP iso-2022-jp-2 iso-2022-jp-ms cp50220 csISO2022JP", "\x1b$BF|\x1b(B", "日"},
		{"iso-2022-jp", "abc \x1b$BF|K", "abc 日\ufffd"},   // the input is cut off in the middle of a character
		{"iso-2022-jp", "\xc3\xbc \xfc\xe4\xf6", "ü üäö"}, // the text is not in the declared charset
		{"euc-jp EUCJP x-euc-jp ujis cp51932", "\xc6\xfc", "日"},
		{"gb2312 GB_2312-80 gbk x-gbk cp936 ms936 windows-936 euc-cn", "\xc4\xe3", "你"},
		{"hz-gb-2312 HZ cp52936", "a ~{VPND~} b", "a 中文 b"},
		{"big5 big5-hkscs x-x-big5 cp950 cn-big5 windows-950", "\xa7A", "你"},
		{"euc-kr EUCKR ks_c_5601-1987 ksc5601 cp949 uhc windows-949 x-windows-949", "\xc0\xcc", "이"},
		{"macintosh mac x-mac-roman macroman cp10000", "\x9f", "ü"},
		{"utf-16 UTF16 utf-16be cp1201", "\x00\xfc", "ü"},
		{"utf-16le cp1200", "\xfc\x00", "ü"},
		{strings.Repeat("x", 1000) + " ??? 8859 cp iso latin", "\xfc", "ü"},
	} {
		for name := range strings.FieldsSeq(tc.names) {
			if got := Charset(name, []byte(tc.in)); got != tc.want {
				t.Errorf("%.50s: %q: %q, want %q", name, tc.in, got, tc.want)
			}
		}
	}
}

// If more than a small part of a text is invalid in its declared charset, Charset decodes the text in another charset.
func TestWrongCharsets(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ charset, in, want string }{
		{"iso-8859-1", "\xc3\xbc", "Ã¼"}, // valid both in the declared charset and in UTF-8
		{"windows-1253", strings.Repeat("\xe1", 19) + "\xd2", strings.Repeat("α", 19) + "\ufffd"},
		{"windows-1253", strings.Repeat("\xe1", 18) + "\xd2", strings.Repeat("á", 18) + "Ò"},
		{"utf-16be", "Hello", "Hello"},
		{"hz-gb-2312", "~{VP", "中"},
		{"", "\ufffd\xfc \x81", "\ufffdü \u0081"},
		{"utf-7" + strings.Repeat("-", 59), "+APw-", "ü"},
		{"utf-7" + strings.Repeat("-", 60), "+APw-", "+APw-"},
	} {
		if got := Charset(c.charset, []byte(c.in)); got != c.want {
			t.Errorf("%q in %s: %q, want %q", c.in, c.charset, got, c.want)
		}
	}
}
