%% @private
%% @doc Keys and certificates in PEM.
-module(weir_pubsub_pem).

-export([entries/1]).

%% @doc The entries of a text. None if any of it is no PEM: a file that is just being written ends in the middle of one.
-spec entries(binary()) -> [public_key:pem_entry()].
entries(Text) ->
    try
        public_key:pem_decode(Text)
    catch
        error:_ -> []
    end.
