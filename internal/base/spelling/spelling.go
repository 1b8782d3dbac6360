// Package spelling finds the words that were meant by misspelled ones.
package spelling

import "strings"

// DidYouMean asks whether one of the words was meant, unless there is none.
func DidYouMean(words []string) string {
	if len(words) == 0 {
		return ""
	}
	return " (did you mean " + strings.Join(words[:min(3, len(words))], " or ") + "?)"
}

// Similar reports whether a word was probably meant by another.
func Similar(written, meant string) bool {
	return strings.HasPrefix(meant, written) && len(written) >= 4 || distance(written, meant) <= allowed(len(meant))
}

// Nearest returns the one of some words that was most probably meant by another, in
// upper or lower case; "" if none is close enough. It is stricter than Similar.
func Nearest(written string, words []string) string {
	best, least := "", min(2, len(written)/3)+1
	for _, word := range words {
		if d := distance(strings.ToLower(written), strings.ToLower(word)); d < least || d == least && best != "" && word < best {
			best, least = word, d
		}
	}
	return best
}

// allowed is how many mistakes a word of that length may have.
func allowed(length int) int {
	if length < 4 {
		return 1
	}
	return max(2, length/4)
}

// distance is the number of letters to insert, delete, replace or swap with the next one
// to turn one word into another.
func distance(a, b string) int {
	rows := [3][]int{make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)}
	for j := range rows[1] {
		rows[1][j] = j
	}
	for i := range len(a) {
		before, last, now := rows[(i)%3], rows[(i+1)%3], rows[(i+2)%3]
		now[0] = i + 1
		for j := range len(b) {
			cost := 1
			if a[i] == b[j] {
				cost = 0
			}
			now[j+1] = min(last[j+1]+1, now[j]+1, last[j]+cost)
			if i > 0 && j > 0 && a[i] == b[j-1] && a[i-1] == b[j] {
				now[j+1] = min(now[j+1], before[j-1]+1)
			}
		}
	}
	return rows[(len(a)+1)%3][len(b)]
}
