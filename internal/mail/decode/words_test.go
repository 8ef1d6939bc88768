package decode

import "testing"

func TestWords(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain":                                             "plain",
		"=?UTF-8?Q?Gr=C3=BC=C3=9Fe?=":                       "Grüße",
		"=?utf-8?q?Gr=c3=bc=c3=9fe?=":                       "Grüße",
		"=?utf-8?B?R3LDvMOfZQ==?=":                          "Grüße",
		"=?utf-8?b?R3LDvMOfZQ?=":                            "Grüße",
		"=?ISO-8859-1?Q?Gr=FC=DFe?= a":                      "Grüße a",
		"=?iso-8859-15?Q?=A4?=":                             "€",
		"=?koi8-r?B?8NLJ18XU?=":                             "Привет",
		"=?ISO-2022-JP?B?GyRCRnxLXBsoQg==?=":                "日本",
		"=?gb2312?B?xOO6ww==?=":                             "你好",
		"=?shift_jis?B?k/qWew==?=":                          "日本",
		"=?cp932?B?k/qWew==?=":                              "日本",
		"=?euc-kr?B?wMw=?=":                                 "이",
		"=?big5?B?p0Gmbg==?=":                               "你好",
		"=?utf-8?Q?a?= =?utf-8?Q?b?=":                       "ab",
		"=?utf-8?Q?a?=  \t=?utf-8?Q?b?=":                    "ab",
		"=?utf-8?Q?a?= =?iso-8859-1?Q?=FC?= c":              "aü c",
		"=?utf-8?Q?a?==?utf-8?Q?b?=":                        "ab",
		"x=?utf-8?Q?a?=y":                                   "xay",
		`"=?utf-8?Q?a?="`:                                   `"a"`,
		"=?utf-8?Q?=E2=82?= =?utf-8?Q?=AC?=":                "€",
		"=?utf-8?B?4oI=?= =?utf-8?B?rA==?=":                 "€",
		"=?utf-8?B?R3LDv?= =?utf-8?B?MOfZQ==?=":             "Grüße",
		"=?utf-8?Q?a b c?=":                                 "a b c",
		"=?utf-8?B?R3LDvMOfZSBhdXMgS8?= =?utf-8?B?O2bG4=?=": "Grüße aus Köln",
		"=?utf-8?Q?abc?= =?utf-8?B?ZA==?=":                  "abcd",
		"=?utf-8?B?YWI?= =?utf-8?Q?c?=":                     "abc",
		"=?utf-8?B?YWI?= =?iso-8859-1?B?/A==?=":             "abü",
		"=?utf-8?B?AAAAY?= =?utf-8?B?WI=?=":                 "ab",
		"=?utf-8?B?YWI!x?= =?utf-8?B?YWI=?=":                "ab1ab",
		"=?x?Q?a?=":                                         "a",
		"=?utf-8?Q?a=4?=":                                   "a=4",
		"=?utf-8?Q?a=?= b":                                  "a= b",
		"=?utf-8?Q?a=09=C3=BC=c3=bc?=":                      "a üü",
		"=?utf-8?Q?why??=":                                  "why?",
		"=?utf-8?Q?a=?=":                                    "a=",
		"=?utf-8?Q?a=ZZ?=":                                  "a=ZZ",
		"=?utf-8*de?Q?a?=":                                  "a",
		"=?x-nonsense?Q?Gr=C3=BC=C3=9Fe?=":                  "Grüße",
		"=?x-nonsense?Q?Gr=FC?=":                            "Grü",
		"=?utf-8?Q?Gr=FC?=":                                 "Grü",
		"=?us-ascii?Q?Gr=FC?=":                              "Grü",
		"=?utf-8?X?abc?=":                                   "=?utf-8?X?abc?=",
		"=?utf-8?Q?abc":                                     "=?utf-8?Q?abc",
		"=?utf-8?Q?abc =?utf-8?Q?d?=":                       "=?utf-8?Q?abc d",
		"=?utf-8?":                                          "=?utf-8?",
		"=??Q?a?=":                                          "=??Q?a?=",
		"=?":                                                "=?",
		"a =? b":                                            "a =? b",
		"=?utf-8?Q??=":                                      "",
		"=?utf-8?Q?a=0D=0ABcc:_x@y.z?=":                     "a Bcc: x@y.z",
		"=?utf-8?Q?a=00b?=":                                 "ab",
		"Re: =?utf-8?Q?a?= =?utf-8?Q?_b?= [#1]":             "Re: a b [#1]",
		"=?windows-1252?Q?=93a=94?=":                        "“a”",
		"=?utf-8?Q?a?= =?utf-8?Q?b?= =?koi8-r?Q?=C1?=":      "abа",
	} {
		if got := Words(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// TestWordsOfBytes decodes encoded words with raw bytes that should have been encoded.
func TestWordsOfBytes(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"=?iso-8859-1?Q?Gr\xfc\xdfe?=":                       "Grüße",
		"=?iso-8859-1?Q?Gr\xfc=DFe?=":                        "Grüße",
		"=?iso-8859-2?Q?\xb3\xf3d\xbc?=":                     "łódź",
		"=?koi8-r?Q?\xf0\xd2\xc9\xd7\xc5\xd4?=":              "Привет",
		"=?windows-1251?Q?\xcf\xf0\xe8\xe2\xe5\xf2_=EC=E8?=": "Привет ми",
		"=?gb2312?Q?\xc4\xe3\xba\xc3?=":                      "你好",
		"=?shift_jis?Q?\x93\xfa\x96{?=":                      "日本",
		"=?shift_jis?Q?\x93\xfa=96{?=":                       "日本",
		"=?big5?Q?\xa7A\xa6n?=":                              "你好",
		"=?utf-8?Q?Gr\xc3\xbc=C3=9Fe?=":                      "Grüße",
		"=?utf-8?Q?Gr\xfc\xdfe?=":                            "Grüße",
		"=?us-ascii?Q?Gr\xfc?=":                              "Grü",
		"=?x-nonsense?Q?Gr\xc3\xbc?=":                        "Grü",
		"=?iso-8859-1?B?R\xfcA==?=":                          "D", // \xfc is skipped because it is not a base64 digit
		"=?utf-8?B?R3LD\xff\xfevMOfZQ==?=":                   "Grüße",
		"=?iso-8859-2?Q?\xb3?= =?iso-8859-2?Q?\xf3d=BC?=":    "łódź",
		"=?iso-8859-2?Q?\xb3?= \xfc =?koi8-r?Q?\xf0?=":       "ł ü П", // outside an encoded word, \xfc is windows-1252
		"\xfc=?iso-8859-2?Q?\xb3?=\xc3\xbc":                  "üłü",
		"\xfc =?iso-8859-2?Q?\xb3":                           "ü =?iso-8859-2?Q?³", // the encoded word is unterminated
		"=?iso-8859-2\xb3?Q?\xb3?=":                          "ł",
		"=?utf-8?Q?\xe2\x82?= =?utf-8?Q?\xac?=":              "€",
		"=?gb2312?Q?\xc4?= =?gb2312?Q?\xe3?=":                "你",
		"=?utf8?Q?=E2=82?= =?UTF-8?Q?=AC?=":                  "€", // two names of the same charset
		`"=?iso-8859-2?Q?\xb3?="`:                            `"\xb3"`,
		"=?iso-8859-2?Q?\xb3?=\x00":                          "ł\x00", // Words keeps NUL; mailparse.unfold removes it
		"=?iso-8859-1?Q??=":                                  "",
		"=?iso-8859-1?Q?\xa0?=":                              "\u00a0",
		"=?iso-8859-1?Q?_\xfc_?= =?iso-8859-1?Q?\xfc?=":      " ü ü",
		"\xff=?\xff?\xff?\xff?=":                             "ÿ=?ÿ?ÿ?ÿ?=",
	} {
		if got := Words(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}
