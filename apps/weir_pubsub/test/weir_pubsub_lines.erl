%% A framing for tests: a message, or a gap, is a line.
-module(weir_pubsub_lines).
-behaviour(weir_pubsub_framing).

-export([message/3, gap/4]).

message(fails_at_2, _Channel, {message, {_, 2}, _, _}) -> error(a_framing_that_fails);
message(fails_at_2, Channel, Message) -> message(<<>>, Channel, Message);
message(Prefix, _Channel, {message, {_, Number}, Data, _}) -> [Prefix, integer_to_binary(Number), " ", Data, $\n].

gap(Prefix, _Channel, Missed, {_, Number}) -> io_lib:format("~sgap ~p ~p~n", [Prefix, Missed, Number]).
