package db

import "github.com/go-json-experiment/json"

// EncodeList returns the JSON of a list for a column, or "" if the list is empty.
func EncodeList[T any](list []T) (string, error) {
	if len(list) == 0 {
		return "", nil
	}
	text, err := json.Marshal(list)
	return string(text), err
}

// DecodeList returns the list that EncodeList encoded.
func DecodeList[T any](text string) (list []T, err error) {
	if text == "" {
		return nil, nil
	}
	err = json.Unmarshal([]byte(text), &list)
	return list, err
}
